"""A scikit-learn pipeline whose last step is a head, in a web app that goes on learning."""

import threading
from typing import Annotated

import numpy as np
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, FiniteFloat
from sklearn.preprocessing import Normalizer

import taer

data = taer.load_features()
first = data.train_y < 10
model = taer.make_pipeline(Normalizer(), taer.Bayes()).fit(data.train_x[first], data.train_y[first])
app = FastAPI()
teaching = threading.Lock()  # one task at a time; predictions go on meanwhile

Vector = Annotated[list[FiniteFloat], Field(min_length=data.n_features, max_length=data.n_features)]


class Samples(BaseModel):
    vectors: Annotated[list[Vector], Field(min_length=1, max_length=1000)]


class Examples(Samples):
    labels: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, max_length=1000)]


@app.exception_handler(RequestValidationError)
def refuse(_: Request, error: RequestValidationError) -> JSONResponse:
    """FastAPI's own answer repeats the body, and fails if that contains NaN."""
    first = error.errors()[0]
    return JSONResponse({"detail": f"{'.'.join(map(str, first['loc']))}: {first['msg']}"}, 422)


@app.post("/predict")
def predict(samples: Samples) -> list[int]:
    return model.predict(matrix(samples)).tolist()


@app.post("/learn")
def learn(examples: Examples) -> list[int]:
    if len(examples.labels) != len(examples.vectors):
        raise HTTPException(422, f"{len(examples.vectors)} vectors need as many labels, got {len(examples.labels)}")
    with teaching:
        model.partial_fit(matrix(examples), examples.labels)  # the other classes keep their scores
    return model.classes_.tolist()


def matrix(samples: Samples) -> np.ndarray:
    with np.errstate(over="ignore"):
        found = np.array(samples.vectors, np.float32)
    if not np.isfinite(found).all():
        raise HTTPException(422, "vectors: every number must fit in 32 bits")
    return found
