# What the rules ask about each job: src/throughline/workflow/ has the functions. The look-ups of what the configuration
# asks for are in study/targets.py and in the targets.py of each data package.

from functools import partial

from throughline import files
from throughline.datasets.targets import FolderTargets
from throughline.installation import recipe
from throughline.report.analysis import cells
from throughline.spec import canonical
from throughline.study import acceptance
from throughline.study.corpus_section import BPE, DATA_PROTOCOL
from throughline.study.data_sections import CLICKS_PROTOCOL, IMAGES_PROTOCOL, SYNTHETIC_VALUES
from throughline.study.targets import CELL, CHECK, RUN, pick
from throughline.workflow.call import or_exit
from throughline.workflow.directives import Commands, by_wildcards, checked, option
from throughline.workflow.training_jobs import RunJobs, TrainingJobs
from throughline.workloads.faces import SIDE

CONFIG, TARGETS, CORPUS = CALL.config, CALL.targets, CALL.config.corpus
CORPUS_TARGETS, PICTURES, CLICKS_TARGETS = CALL.corpus, CALL.pictures, CALL.clicks

COMMANDS = Commands(INSIDE.root, WILDCARDS)
command, step, code_of = COMMANDS.script, COMMANDS.step, COMMANDS.code

# Makes an input function for a file of the corpus that is made of what the wildcards name.
of_corpus = partial(checked, CORPUS_TARGETS.check)

# The priority of data and environments is higher than that of any run. Otherwise a run that needs no data could start
# before the other runs of its repeat.
BEFORE_RUNS = len(CALL.specs) + 1

# The results of other people's logs, and the comparison with archives, if the configuration has them.
IMPORTS = expand("results/{imported}/imported.json", imported=CONFIG.imports)
AGAINST = or_exit(CONFIG.compare.there)
COMPARED = ["results/compare.json"] if AGAINST else []


def import_of(wildcards):
    """The import of the configuration that a file belongs to."""
    return or_exit(pick, CONFIG.imports, wildcards.imported, "import {}")


def of_pictures(look_up):
    """Make a look-up for rules of pictures: `look_up` gets the targets of the wildcard `room`, then the others."""
    return lambda room, **wildcards: look_up(PICTURES[room], **wildcards)
