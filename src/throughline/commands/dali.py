"""Install the pinned DALI into the environment of a framework, for options.image_decoder: dali.

framework: such as torch or mxnet-horovod; its environment has to be built
"""


def main(framework: str, /) -> None:
    from throughline.installation import dali

    dali.install(framework)
