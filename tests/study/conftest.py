"""Study files made in tests."""

import pytest

from hpcfl.errors import BadInput
from hpcfl.study.study_file import Study, read_study


@pytest.fixture
def study(tmp_path):
    """Returns the study that a text describes."""

    def read(text: str, scale: str = "full", *asked: str) -> Study:
        path = tmp_path / "s.toml"
        path.write_text(text)
        return read_study(path, scale, asked)

    return read


@pytest.fixture
def refused():
    """Returns the sentence with which something is refused."""

    def sentence(function, *arguments) -> str:
        with pytest.raises(BadInput) as error:
            function(*arguments)
        return str(error.value)

    return sentence
