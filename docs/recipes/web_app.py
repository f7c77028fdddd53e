"""A scikit-learn pipeline whose last step is a head, in a web app that goes on learning."""

import threading

import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel
from sklearn.preprocessing import Normalizer

import taer

data = taer.load_features()
first = data.train_y < 10
model = taer.make_pipeline(Normalizer(), taer.Bayes()).fit(data.train_x[first], data.train_y[first])
app = FastAPI()
teaching = threading.Lock()  # one task at a time; predictions go on meanwhile


class Samples(BaseModel):
    vectors: list[list[float]]


class Task(Samples):
    labels: list[int]


@app.post("/predict")
def predict(samples: Samples) -> list[int]:
    return model.predict(np.array(samples.vectors, np.float32)).tolist()


@app.post("/learn")
def learn(task: Task) -> list[int]:
    with teaching:  # the other classes keep their scores
        model.partial_fit(np.array(task.vectors, np.float32), task.labels)
    return model.classes_.tolist()
