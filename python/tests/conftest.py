from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def model():
    """The packaged model: four layers of experts, float weights."""
    return ROOT / "models" / "tiny-moe"


@pytest.fixture
def text():
    """English enough for rows of the packaged model."""
    return [ROOT / "docs" / "architecture.md"]


@pytest.fixture
def program():
    """The program, built from the same source: `./run python` builds it."""
    built = ROOT / "build" / "cli" / "mixtape"
    if not built.exists():
        pytest.skip(f"{built} is not built")
    return built
