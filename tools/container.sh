#!/bin/sh
# The Containerfile on a base made of Debian's packages: built, started, taught and asked over HTTP, started again.
#     tools/container.sh .venv/bin        as root, with debootstrap, buildah, podman and runc
# Packages of Python come through the pip of that environment, so that no image and no network is needed inside.
# CONTAINER_WORK=DIR keeps the base and the images there.
set -eu
bin=$1
cd "$(dirname "$0")/.."
skip() { echo "container: skipped, $1"; exit 0; }
for program in debootstrap buildah podman runc curl; do
    command -v $program > /dev/null || skip "$program is missing"
done
[ "$(id -u)" = 0 ] || skip "it needs root"
[ "$("$bin/python" -c 'import sys; print(*sys.version_info[:2])')" = "3 11" ] || skip "Debian 12 has Python 3.11"

work=${CONTAINER_WORK:-$(mktemp -d)}
name=taer-$$ port=8000
store="--storage-driver vfs --root $work/store --runroot $work/run"
# runc, and limits below those of the host: in a container of its own, crun and larger limits are refused. Intervals of
# health checks need systemd; below, the check is run by hand.
run="podman $store --runtime runc run --detach --network host --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --health-interval disable"
finish() {
    podman $store --runtime runc rm --force --volumes $name > /dev/null 2>&1 || true
    if [ -z "${CONTAINER_WORK:-}" ]; then
        rm -rf "$work"
    fi
}
trap finish EXIT

if ! buildah $store inspect --type image localhost/debian-python > /dev/null 2>&1; then
    debootstrap --variant=minbase --include=python3,python3-venv bookworm "$work/base" > "$work/debootstrap.log"
    rm -rf "$work"/base/var/cache/apt/archives/*.deb "$work"/base/var/lib/apt/lists/*
    base=$(buildah $store from scratch)
    buildah $store copy --quiet "$base" "$work/base" / > /dev/null
    buildah $store commit --quiet --rm "$base" localhost/debian-python > /dev/null
fi
"$bin/pip" wheel --quiet --disable-pip-version-check --wheel-dir "$work/wheels" '.[serve]' hatchling
printf '[global]\nno-index = true\nfind-links = /wheels\n' > "$work/pip.conf"
buildah $store build --isolation chroot --format docker --build-arg BASE=localhost/debian-python --tag taer \
    --volume "$work/wheels:/wheels:ro" --volume "$work/pip.conf:/etc/pip.conf:ro" . > "$work/build.log"

serve() {
    $run --name $name --volume $name:/data --env TAER_TOKEN=secret localhost/taer --port $port > /dev/null
    for _ in $(seq 120); do
        curl --silent --fail localhost:$port/health > /dev/null && return
        sleep 1
    done
    podman $store logs $name
    exit 1
}
ask() { path=$1; shift; curl --silent --show-error --fail -H 'Authorization: Bearer secret' -H 'Content-Type: application/json' "$@" localhost:$port$path; echo; }

serve
[ "$(podman $store --runtime runc exec $name id -u)" = 10001 ]
[ "$(curl --silent --output /dev/null --write-out '%{http_code}' localhost:$port/classes)" = 401 ]
podman $store --runtime runc healthcheck run $name
ask /examples --data '{"label": "left", "vectors": [[0, 1], [0.1, 1], [0.2, 0.9]]}'
ask /examples --data '{"label": "right", "vectors": [[1, 0], [1, 0.1], [0.9, 0.2]]}'
ask /learn --request POST
podman $store --runtime runc stop --time 20 $name > /dev/null
[ "$(podman $store inspect --format '{{.State.ExitCode}}' $name)" = 0 ]
podman $store --runtime runc rm $name > /dev/null # the volume stays
serve
ask /predict --data '{"vectors": [[0.95, 0]]}' | grep '"label":"right"'
echo "container: $(podman $store image inspect --format '{{.Size}}' localhost/taer | awk '{printf "%.0f MB", $1 / 1e6}'), works"
