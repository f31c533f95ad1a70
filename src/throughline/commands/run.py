"""Measure: start the workflow with targets, and with a preset or a configuration of your own.

It prints the command of Snakemake that it starts. Snakemake's own arguments can be given as well, such as --dry-run.

words: targets, configurations (files that end in .yaml) and arguments of Snakemake
preset: a configuration that comes with the workflow
list: list the presets
"""

import sys


def main(*words: str, preset: str | None = None, list: bool = False) -> None:
    from throughline import snakemake_command
    from throughline.study import presets

    if list:
        print("\n".join(f"{preset.name:<22} {preset.about}" for preset in presets.presets()))
        return
    command = snakemake_command.command(words, preset)
    print(command, file=sys.__stdout__, flush=True)  # not through `files.scrub`: what is printed can be typed
    command.execute()
