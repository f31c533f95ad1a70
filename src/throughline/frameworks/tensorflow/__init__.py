"""The framework `tensorflow`: TensorFlow with its own collectives. This file describes it and imports no TensorFlow."""

from throughline.frameworks.description import TRAINS, Framework

FRAMEWORK = Framework(
    rank="tensorflow.rank:TensorFlow",
    library="keras",
    packages=("tensorflow-cpu", "tensorflow", "keras-hub"),
    accelerators={
        "cuda": "import json, tensorflow as tf; gpus = tf.config.list_physical_devices('GPU'); "
        "about = [tf.config.experimental.get_device_details(gpu) for gpu in gpus[:1]]; "
        "print(json.dumps({'count': len(gpus), 'name': about[0].get('device_name') if about else None, 'fp16': None}))"
    },
    features=TRAINS | {"bf16", "compile", "activation_checkpointing"},
)
