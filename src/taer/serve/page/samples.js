// Files that were dropped, as what the service takes: images in base64, or vectors. Photos are scaled down first.

const SIDE = 1024; // pixels of the longer side: the service looks at no more
const SMALL = 2 ** 20; // bytes of a file that is sent as it is, if it is not larger than that

export async function read(files, kind) {
  const images = [...files].filter(isImage);
  const others = [...files].filter((file) => !isImage(file));
  if (images.length && kind !== "image") throw new Error("This service takes no images: drop vectors (.csv or .json).");
  if (images.length && others.length) throw new Error("Drop either images or vectors.");
  if (images.length) {
    const content = [];
    for (const file of images) content.push(await asDataAddress(file)); // one after the other: a photo is large
    return { images: content.map((text) => text.split(",")[1]), thumbs: content };
  }
  const vectors = (await Promise.all(others.map(async (file) => parse(await file.text(), file.name)))).flat();
  if (!vectors.length) throw new Error("There is nothing in it.");
  return { vectors, thumbs: [] };
}

// Few browsers read the photos of a phone, and some do not even give them a type; the service reads them.
const isRaw = (file) => /\.(heic|heif|avif)$/i.test(file.name);
const isImage = (file) => file.type.startsWith("image/") || isRaw(file);

async function asDataAddress(file) {
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    if (isRaw(file)) return asItIs(file);
    throw new Error(`${file.name} is not an image that this browser can read.`);
  }
  const scale = SIDE / Math.max(picture.width, picture.height);
  if (scale >= 1 && file.size <= SMALL) {
    picture.close();
    return asItIs(file);
  }
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(picture.width * Math.min(1, scale)));
  canvas.height = Math.max(1, Math.round(picture.height * Math.min(1, scale)));
  const paper = canvas.getContext("2d");
  paper.fillStyle = "#fff"; // what is transparent is white, as on the server
  paper.fillRect(0, 0, canvas.width, canvas.height);
  paper.imageSmoothingQuality = "high";
  paper.drawImage(picture, 0, 0, canvas.width, canvas.height);
  picture.close();
  return canvas.toDataURL("image/jpeg", 0.92);
}

function asItIs(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

export function parse(text, name) {
  try {
    const rows = text.trim().startsWith("[")
      ? JSON.parse(text)
      : text.trim().split(/\r?\n/).map((line) => line.split(/[\s,;]+/).filter(Boolean).map(Number));
    const matrix = Array.isArray(rows[0]) ? rows : [rows];
    if (matrix.every((row) => Array.isArray(row) && row.every(Number.isFinite))) return matrix;
  } catch { /* said below */ }
  throw new Error(`${name} is not rows of numbers: expected .csv, or .json like [[1, 2], [3, 4]].`);
}

// What fits into one request.
export function parts(items) {
  const [[kind, all]] = Object.entries(items);
  const size = { images: 16, texts: 64, vectors: 1024 }[kind];
  return Array.from({ length: Math.ceil(all.length / size) }, (_, i) => ({ [kind]: all.slice(i * size, (i + 1) * size) }));
}
