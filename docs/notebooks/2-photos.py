# %% [markdown]
# # Photos
#
# From a folder of photos to a classifier that learns a new kind of photo later. The photos are cut from the two
# that come with scikit-learn, so nothing is downloaded. It needs `pip install '.[images]'`.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

import taer

# %% [markdown]
# ## A folder per class
#
# Each class is a region of one of the photos. Training photos are cut from its left part, test photos from its right
# part, so no pixel is in both.

# %%
REGIONS = {  # left, top, right, bottom
    "sky": ("china.jpg", (330, 10, 640, 190)),
    "pagoda": ("china.jpg", (95, 90, 325, 330)),
    "lake": ("china.jpg", (350, 205, 545, 290)),
    "trees": ("china.jpg", (330, 290, 640, 427)),
    "petals": ("flower.jpg", (185, 100, 430, 340)),
    "leaves": ("flower.jpg", (0, 60, 170, 330)),
}
SIDE = 64
folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
for name, (photo, (left, top, right, bottom)) in REGIONS.items():
    image, middle = Image.fromarray(load_sample_image(photo)), (left + right) // 2
    for part, count, start, stop in (("train", 12, left, middle), ("test", 6, middle, right)):
        (folder / "photos" / part / name).mkdir(parents=True)
        for number in range(count):
            x = int(rng.integers(start, max(start, stop - SIDE) + 1))
            y = int(rng.integers(top, bottom - SIDE + 1))
            image.crop((x, y, x + SIDE, y + SIDE)).save(folder / "photos" / part / name / f"{number:02}.png")

figure, axes = plt.subplots(1, len(REGIONS), figsize=(9, 1.9))
for axis, name in zip(axes, REGIONS, strict=True):
    axis.imshow(Image.open(folder / "photos" / "train" / name / "00.png"))
    axis.set_title(name)
    axis.axis("off")

# %% [markdown]
# ## Photos to features
#
# A frozen EfficientNet-Lite0 turns each photo into 1,280 numbers. On the command line this is
# `taer extract photos/ --backbone efficientnet-lite0 --out photos.safetensors`.

# %%
data = taer.extract(folder / "photos", "efficientnet-lite0", folder / "photos.safetensors")
names = np.array(data.classes)
X, y = np.asarray(data.train_x), names[data.train_y]
X_test, y_test = np.asarray(data.test_x), names[data.test_y]

# %% [markdown]
# ## Four classes, then two more

# %%
known = np.isin(y, ["sky", "pagoda", "trees", "petals"])
head = taer.Bayes().partial_fit(X[known], y[known])
before = head.scores(X_test, ["sky", "pagoda", "trees", "petals"])

head.partial_fit(X[~known], y[~known])
assert (head.scores(X_test, ["sky", "pagoda", "trees", "petals"]) == before).all()
accuracy = head.score(X_test, y_test)
print(f"{accuracy:.0%} of {len(y_test)} test photos of {len(head.classes_)} classes")
assert accuracy > 0.7

# %% [markdown]
# ## Keep it
#
# A head is one file. `taer serve heads/ --model photos-head.safetensors --backbone efficientnet-lite0` puts it behind
# HTTP and takes photos directly.

# %%
head.save(folder / "photos-head.safetensors")
same = taer.load(folder / "photos-head.safetensors")
assert (same.predict(X_test) == head.predict(X_test)).all()
print(f"{(folder / 'photos-head.safetensors').stat().st_size / 1e6:.1f} MB")
