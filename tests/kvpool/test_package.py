from importlib.resources import files


def test_package_says_that_it_is_typed() -> None:
    assert files("kvpool").joinpath("py.typed").is_file()
