"""A head as an MLflow model."""

import mlflow

import taer


class HeadModel(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        self.head = taer.load(context.artifacts["head"])

    def predict(self, context, model_input, params=None):
        return self.head.predict(model_input)


def log_head(path: str, example):
    """Log the file of a saved head in the current run."""
    return mlflow.pyfunc.log_model(
        name="model",
        python_model=HeadModel(),
        artifacts={"head": path},
        input_example=example,
        pip_requirements=["taer"],
    )
