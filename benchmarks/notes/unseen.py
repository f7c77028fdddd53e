"""Feature sets on which no head was tuned, made from what package registries carry.

    apt-get install espeak-ng iso-codes fontconfig $(python -m benchmarks.notes.unseen --packages)
    python -m benchmarks.notes.unseen --out features --texts banking77.csv clinc150.csv
    python -m benchmarks.pages.fewshot --features features/*.safetensors --out results/unseen

- glyphs: a character drawn in one font per sample; EfficientNet-Lite0
- words: a word spoken by espeak-ng in one voice per sample, with noise; statistics of the log-mel spectrogram
- languages: three names of iso-codes (countries, currencies, …) in one language; hashed character n-grams and SVD
- digits: the 8 × 8 pixels of scikit-learn's digits
- NAME-lsa for each table of texts (columns text, label, split): tf-idf of words and character n-grams, and SVD

Except for tables, which have their own split, 30 % of each class are held out for test. Fonts and voices of another
version of a package give other features.
"""

from __future__ import annotations

import argparse
import csv
import gettext
import string
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy.signal import stft
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer

import taer

FONTS = """
    adf-accanthis adf-baskervald adf-berenis adf-gillius adf-ikarius adf-irianis adf-libris adf-mekanus
    adf-oldania adf-romande adf-solothurn adf-switzera adf-tribun adf-universalis adf-verana allerta arapey b612
    bebas-neue beteckna breip cabin cabinsketch cantarell cardo clear-sans comfortaa comic-neue courier-prime
    crosextra-caladea dancingscript dejavu dkg-handwriting dosis dustin ebgaramond ecolier-court essays1743
    fantasque-sans fanwood femkeklaver freefont-ttf georgewilliams gnutypewriter go goudybookletter hack havana
    humor-sans inconsolata isabella joscelyn junction junicode jura karla kaushanscript klaudia-berenika kristi
    lato leckerli-one levien-museum liberation lindenhill linuxlibertine lobster manrope monofur national-park
    ocr-a oldstandard open-sans opendyslexic play prociono quattrocento quicksand radisnoir roboto-slab
    rufscript sil-andika sil-charis sjfonts sora staypuft summersby tomsontalks tuffy vollkorn yanone-kaffeesatz
"""
CHARACTERS = string.ascii_letters + string.digits + "!#$%&()*+/:;<=>?@[]{}"
WORDS = """
    zero one two three four five six seven eight nine ten yes no on off up down left right stop go open close
    start end red green blue yellow black white monday tuesday wednesday thursday friday saturday sunday water
    coffee bread apple lemon house garden kitchen window table music light fire river mountain summer winter dog
    cat bird horse train
"""
ACCENTS = "en-us en-gb en-gb-scotland en-gb-x-rp en-gb-x-gbclan en-gb-x-gbcwmd en-029 en-us-nyc"
SAMPLES = 100  # per class, at most
DIMENSIONS = 256  # of an SVD
RATE = 22050  # of espeak-ng, in hertz
MELS, SEGMENTS = 32, 8
NAMES = 3  # in a sample of a language

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X_train, y_train, X_test, y_test


def split(X: np.ndarray, y: np.ndarray) -> Arrays:
    """Hold out 30 % of each class."""
    rng = np.random.default_rng(0)
    test = np.zeros(len(y), bool)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        test[rows[: round(0.3 * len(rows))]] = True
    return X[~test], y[~test], X[test], y[test]


def font_files() -> list[Path]:
    """One file per family that has all characters."""
    wanted = " ".join(f"{ord(character):x}" for character in CHARACTERS)
    command = ["fc-list", f":lang=en:charset={wanted}", "--format", "%{family[0]}\t%{file}\n"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    kept: dict[str, Path] = {}
    for family, file in sorted(line.split("\t") for line in listed.splitlines()):
        known = any(family.startswith(name) for name in kept)  # "Lato Black" is no family beside "Lato"
        if not known and Path(file).suffix in (".ttf", ".otf"):
            kept[family] = Path(file)
    return list(kept.values())


def glyphs() -> Arrays:
    rng = np.random.default_rng(0)
    files = font_files()
    files = [files[i] for i in sorted(rng.permutation(len(files))[:SAMPLES])]
    print(f"{len(files)} families of fonts")
    extractor, rows = taer.Extractor("efficientnet-lite0"), []
    for file in files:
        drawn = []
        for character in CHARACTERS:
            image = Image.new("L", (224, 224), 255)
            where = 112 + rng.uniform(-12, 12), 150 + rng.uniform(-12, 12)
            font = ImageFont.truetype(file, int(rng.integers(100, 140)))
            ImageDraw.Draw(image).text(where, character, fill=0, font=font, anchor="ms")
            drawn.append(image.rotate(rng.uniform(-8, 8), Image.Resampling.BILINEAR, fillcolor=255).convert("RGB"))
        rows.append(extractor.transform(drawn))
    return split(np.concatenate(rows), np.array(list(CHARACTERS) * len(files)))


def spoken(word: str, voice: str, pitch: int, speed: int) -> np.ndarray:
    command = ["espeak-ng", "-v", voice, "-p", str(pitch), "-s", str(speed), "--stdout", word]
    wav = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(wav, np.int16, offset=44) / 32768  # behind a header that cannot know the length


def mel_statistics(sound: np.ndarray) -> np.ndarray:
    """Mean and standard deviation of each log-mel band in each segment of time."""
    frequencies, _, spectrum = stft(sound, RATE, nperseg=512, noverlap=352)
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + RATE / 1400), MELS + 2) / 2595) - 1)
    bands = [
        np.interp(frequencies, [low, middle, high], [0, 1, 0])
        for low, middle, high in zip(edges, edges[1:], edges[2:], strict=False)
    ]
    energy = np.log(np.array(bands) @ np.abs(spectrum) ** 2 + 1e-10)
    parts = np.array_split(energy, SEGMENTS, axis=1)
    return np.concatenate([moment for part in parts for moment in (part.mean(axis=1), part.std(axis=1))])


def words() -> Arrays:
    rng = np.random.default_rng(0)
    listed = subprocess.run(["espeak-ng", "--voices=variant"], capture_output=True, text=True, check=True).stdout
    variants = sorted({line.split("!v/")[1].split()[0] for line in listed.splitlines() if "!v/" in line})
    calls = []
    for word in WORDS.split():
        for _ in range(SAMPLES):
            voice = f"{rng.choice(ACCENTS.split())}+{rng.choice(variants)}"
            calls.append((word, voice, int(rng.integers(20, 80)), int(rng.integers(120, 220))))
    with ThreadPoolExecutor() as pool:
        sounds = list(pool.map(lambda call: spoken(*call), calls))
    rows = []
    for sound in sounds:
        noise = sound.std() * 10 ** (-rng.uniform(5, 25) / 20)  # 5 to 25 dB below the voice
        rows.append(mel_statistics(sound + noise * rng.normal(size=len(sound))))
    return split(np.array(rows, np.float32), np.array([word for word, *_ in calls]))


def translations(language: str) -> list[str]:
    """The translated names of iso-codes that differ from the English ones."""
    found = set()
    for domain in ("iso_3166-1", "iso_4217", "iso_639-2", "iso_15924"):
        try:
            catalog = gettext.translation(domain, "/usr/share/locale", [language])._catalog  # type: ignore[attr-defined]
        except FileNotFoundError:
            continue
        found |= {name for english, name in catalog.items() if english and name not in ("", english)}
    return sorted(found)


def languages() -> Arrays:
    rng = np.random.default_rng(0)
    texts, labels = [], []
    for folder in sorted(Path("/usr/share/locale").iterdir()):
        names = rng.permutation(translations(folder.name)) if folder.name.isalpha() else []
        if len(names) >= NAMES * SAMPLES // 2:
            samples = [" ".join(names[i : i + NAMES]) for i in range(0, len(names) - NAMES + 1, NAMES)][:SAMPLES]
            texts += samples
            labels += [folder.name] * len(samples)
    train, y_train, test, y_test = split(np.array(texts), np.array(labels))
    hashed = HashingVectorizer(analyzer="char_wb", ngram_range=(1, 4), n_features=2**16)
    return reduced(hashed, train, y_train, test, y_test)


def reduced(
    vectorizer: object, train: np.ndarray, y_train: np.ndarray, test: np.ndarray, y_test: np.ndarray
) -> Arrays:
    model = make_pipeline(vectorizer, TruncatedSVD(DIMENSIONS, random_state=0), FunctionTransformer(np.float32))
    return model.fit_transform(train), y_train, model.transform(test), y_test


def table(file: Path) -> Arrays:
    with file.open(newline="", encoding="utf-8") as opened:
        read = list(csv.DictReader(opened))
    parts = []
    for part in ("train", "test"):
        lines = [line for line in read if line["split"] == part]
        parts += [np.array([line["text"] for line in lines]), np.array([line["label"] for line in lines])]
    union = make_union(
        TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=2, sublinear_tf=True),
    )
    return reduced(union, *parts)


def digits() -> Arrays:
    X, y = load_digits(return_X_y=True)
    return split(X.astype(np.float32), y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("features"))
    parser.add_argument(
        "--texts", type=Path, nargs="*", default=[], help="tables with columns text, label and split"
    )
    parser.add_argument(
        "--packages", action="store_true", help="print the packages of the fonts, and do nothing else"
    )
    options = parser.parse_args()
    if options.packages:
        print(*(f"fonts-{name}" for name in FONTS.split()))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    sets = {"digits": digits} | {f"{file.stem}-lsa": partial(table, file) for file in options.texts}
    for name, make in (sets | {"languages": languages, "words": words, "glyphs": glyphs}).items():
        out = options.out / f"{name}.safetensors"
        if not out.exists():
            data = taer.features_from_arrays(*make(), out=out, name=name)
            samples = f"{len(data.train_y)} + {len(data.test_y)} samples"
            print(f"{name}: {len(data.classes)} classes, {samples} of {data.train_x.shape[1]} features", flush=True)


if __name__ == "__main__":
    main()
