"""How channels_last.onnx and answers.npz were made: `python export.py`, with tensorflow 2.21 and tf2onnx 1.17.

TensorFlow is too large for the development environment, so what it wrote is kept beside this file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf  # type: ignore[import-not-found]
import tf2onnx  # type: ignore[import-not-found]

HERE = Path(__file__).parent
SHAPE = (6, 5, 2)  # height, width, channels: all different, so that no two can be mixed up


def main() -> None:
    keras = tf.keras
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input(SHAPE),
            keras.layers.Conv2D(3, 3, padding="same", activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(6, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    X = np.random.default_rng(0).uniform(size=(256, *SHAPE)).astype("f4")
    brighter_above = X[:, :3].mean((1, 2, 3)) > X[:, 3:].mean((1, 2, 3))
    first_channel = X[..., 0].mean((1, 2)) > X[..., 1].mean((1, 2))
    model.fit(X, brighter_above.astype(int) + first_channel, epochs=8, verbose=0)
    signature = (tf.TensorSpec((None, *SHAPE), tf.float32, name="image"),)
    forward = tf.function(lambda image: model(image, training=False), input_signature=signature)
    tf2onnx.convert.from_function(
        forward, input_signature=signature, opset=15, output_path=str(HERE / "channels_last.onnx")
    )
    np.savez_compressed(HERE / "answers.npz", X=X[:4], probabilities=model(X[:4]).numpy())


if __name__ == "__main__":
    main()
