#!/usr/bin/env bash
# Run the fast tests of heads, saving and the command line under each OpenBLAS kernel that this CPU supports: with one
# and two threads if TAER_TESTS=long, else in turn with one of them. Sums round differently in each, and the promises
# must hold in all. A pass takes six minutes of one core.
# Usage: tools/kernels.sh FOLDER-OF-PYTHON [options of pytest]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1
shift
files=(tests/heads tests/zoo tests/persist tests/inspection tests/cli/test_heads.py tests/cli/test_run.py)
ran="" turn=1
for entry in Nehalem:sse4_2 Haswell:avx2 Zen:avx2 SkylakeX:avx512dq; do
    core=${entry%:*} needs=${entry#*:}
    if ! grep -m 1 '^flags' /proc/cpuinfo 2>/dev/null | grep -qw "$needs"; then
        echo "kernels: $core is skipped: this CPU lacks $needs"
        continue
    fi
    export OPENBLAS_CORETYPE=$core
    found=$("$bin/python" -c "
import numpy, scipy.linalg, threadpoolctl
print(*sorted({library.get('architecture', 'no OpenBLAS') for library in threadpoolctl.threadpool_info()}), sep=', ')")
    if [[ " $ran" == *" $found;"* ]]; then  # the wheels of numpy have the same kernels for Haswell and Zen
        echo "kernels: $core is skipped: for OpenBLAS here that is $found, which was run"
        continue
    fi
    ran+="$found; "
    threads_of=$turn
    [[ ${TAER_TESTS:-} == long ]] && threads_of="1 2"
    turn=$((3 - turn))
    for threads in $threads_of; do
        echo "kernels: $core ($found), threads: $threads"
        OPENBLAS_NUM_THREADS=$threads "$bin/pytest" -n 2 -m 'not slow' "${files[@]}" "$@"
    done
done
