// Files that were dropped, as what the service takes: images in base64, or vectors.

const LARGEST = 4 * 2 ** 20;

export async function read(files, kind) {
  const images = [...files].filter((file) => file.type.startsWith("image/"));
  const others = [...files].filter((file) => !file.type.startsWith("image/"));
  if (images.length && kind !== "image") throw new Error("This service has no image backbone: drop vectors (.csv or .json).");
  if (images.some((file) => file.size > LARGEST)) throw new Error("An image may have 4 MiB.");
  if (images.length && others.length) throw new Error("Drop either images or vectors.");
  if (images.length) {
    const content = await Promise.all(images.map(asDataAddress));
    return { images: content.map((text) => text.split(",")[1]), thumbs: content };
  }
  const vectors = (await Promise.all(others.map(async (file) => parse(await file.text(), file.name)))).flat();
  if (!vectors.length) throw new Error("There is nothing in it.");
  return { vectors, thumbs: [] };
}

function asDataAddress(file) {
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
