"""The data worker of a vision-language model's grounding: `python -m distrl.pretraining.grounding.language_worker`.

As `data_worker`, with rows of tokens instead of the pixel policy's queries.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from random import Random

from distrl.policies.vlm.prompt_tokens import PromptTokens
from distrl.pretraining.demonstrations import WorkerJob
from distrl.pretraining.grounding.data_worker import annotated_screens, filled_blocks, main
from distrl.pretraining.grounding.language_samples import LanguageSampleWriter, language_fields, picture_size


def blocks(job: WorkerJob) -> Iterator[bytearray]:
    """Blocks of samples for the model of `policy.vlm`."""
    config, random = job.config, Random(f"screens {job.config.run.seed} {job.number}")
    size = picture_size(config)
    writer = LanguageSampleWriter(config, PromptTokens(config.policy.vlm, size), random)
    return filled_blocks(writer, language_fields(config), annotated_screens(job, random, size))


if __name__ == "__main__":
    sys.exit(main(blocks))
