// A photo from the camera: on a phone its own app takes it, elsewhere it is taken from what the camera shows.

const byId = (id) => document.getElementById(id);
const onPhone = matchMedia("(pointer: coarse)").matches;

// Browsers show the camera to pages of this machine and to pages with TLS alone.
export const hasCamera = onPhone || Boolean(navigator.mediaDevices?.getUserMedia);

// `take(files)` is called with the photo, `fail(words)` if there is none.
export function setUp(take, fail) {
  byId("camera").onclick = () => (onPhone ? byId("camera-file").click() : look(take, fail));
  byId("camera-file").onchange = (event) => take(event.target.files);
}

async function look(take, fail) {
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 1920 }, facingMode: "environment" } });
  } catch {
    fail("There is no camera that this page may use. Choose a file instead.");
    return;
  }
  const dialog = byId("camera-dialog");
  byId("camera-view").srcObject = stream;
  dialog.onclose = () => stream.getTracks().forEach((track) => track.stop());
  byId("camera-close").onclick = () => dialog.close();
  byId("camera-take").onclick = async () => {
    const photo = await shown(byId("camera-view"));
    dialog.close();
    take([photo]);
  };
  dialog.showModal();
}

function shown(video) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  canvas.getContext("2d").drawImage(video, 0, 0);
  return new Promise((resolve) => {
    canvas.toBlob((content) => resolve(new File([content], "photo.jpg", { type: "image/jpeg" })), "image/jpeg", 0.92);
  });
}
