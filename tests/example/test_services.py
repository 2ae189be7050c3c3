from __future__ import annotations

from pathlib import Path

import pytest

from project import services


def test_without_an_address_the_database_is_a_file(tmp_path: Path) -> None:
    database = services.database("", tmp_path)
    assert database["NAME"] == tmp_path / "shop.sqlite3"
    assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


@pytest.mark.parametrize(
    ("scheme", "engine"),
    [
        ("postgres", "postgresql"),
        ("postgresql", "postgresql"),
        ("mysql", "mysql"),
        ("mariadb", "mysql"),
    ],
)
def test_an_address_becomes_a_database(scheme: str, engine: str, tmp_path: Path) -> None:
    database = services.database(f"{scheme}://ann:p%40ss@db.example:1234/shop", tmp_path)
    assert database == {
        "ENGINE": f"django.db.backends.{engine}",
        "NAME": "shop",
        "USER": "ann",
        "PASSWORD": "p@ss",
        "HOST": "db.example",
        "PORT": 1234,
    }


def test_without_an_address_the_broker_is_a_folder(tmp_path: Path) -> None:
    url, options = services.broker("", tmp_path)
    assert url == "filesystem://"
    assert Path(options["data_folder_in"]).is_dir()
    assert Path(options["control_folder"]).is_dir()


@pytest.mark.parametrize("address", ["redis://cache.example:6379/1", "amqp://guest:guest@queue.example//"])
def test_a_brokers_address_is_taken_as_it_is(address: str, tmp_path: Path) -> None:
    assert services.broker(address, tmp_path) == (address, {})


def test_an_unknown_scheme_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'oracle'; give one of postgres"):
        services.database("oracle://db/shop", tmp_path)
    with pytest.raises(ValueError, match="'kafka'; give one of redis"):
        services.broker("kafka://queue", tmp_path)
