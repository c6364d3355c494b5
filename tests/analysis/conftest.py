from __future__ import annotations

import pytest

from fillerscope.analysis.run import Run
from support.synthetic import Synthetic


@pytest.fixture(scope="session")
def recipe() -> Synthetic:
    return Synthetic()


@pytest.fixture(scope="session")
def run(recipe: Synthetic, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recipe.build(tmp_path_factory.mktemp("analysis") / "run")
