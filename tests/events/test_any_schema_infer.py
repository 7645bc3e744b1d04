"""Proposing a schema and saying what is wrong with one."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ustad.cli.infer import schema as app
from ustad.events.encoder import Encoder
from ustad.schema import EventSchema, Feature, mobility_schema
from ustad.schema_infer import _word, check, infer
from ustad.tables import TIMESTAMP, DataError

N = 200


def orders(**columns: object) -> pa.Table:
    """Orders of ten customers with columns of every kind."""
    rng = np.random.default_rng(0)
    table = {
        "order_id": np.arange(N),
        "customer": [f"c{i % 10}" for i in range(N)],
        "ordered_at": pa.array(np.arange(N) * 3_600_000_000).cast(TIMESTAMP),
        "amount": np.exp(rng.normal(3, 1.2, N)),
        "temperature": rng.normal(10, 5, N),
        "store": rng.choice(["north", "south", "west"], N),
        "rating": rng.integers(1, 6, N),
        "comment": [f"text {i}" for i in range(N)],
        "constant": np.ones(N),
        "taste": pa.array([[0.1, 0.2, 0.3]] * N),
        "lat": rng.normal(48.8, 0.05, N),
        "lon": rng.normal(2.3, 0.05, N),
    }
    return pa.table({**table, **columns})


def test_every_column_is_understood_or_left_out_with_a_reason():
    proposal = infer(orders())
    found = {f.name: f for f in proposal.schema.features}
    assert (proposal.schema.entity, proposal.schema.time) == ("customer", "ordered_at")
    assert (proposal.schema.event_id, proposal.schema.habitat) == ("order_id", "store")
    assert (found["amount"].kind, found["amount"].transform) == ("numeric", "log")
    assert (found["temperature"].kind, found["temperature"].transform) == ("numeric", "none")
    assert {found["store"].kind, found["rating"].kind} == {"categorical"}
    assert (found["taste"].kind, found["taste"].size) == ("vector", 3)
    assert found["place"].source == ("lat", "lon")
    assert (proposal.schema.entity_word, proposal.schema.event_word) == ("customer", "order")
    assert set(proposal.left_out) == {"comment", "constant"}
    assert all(proposal.reasons[f.name] for f in proposal.schema.features)


def test_the_proposed_file_reads_back_as_the_same_schema_and_encodes_the_table(tmp_path):
    proposal = infer(orders(), "orders")
    path = tmp_path / "orders.yaml"
    path.write_text(proposal.to_yaml())
    again = EventSchema.from_yaml(path)
    assert again == proposal.schema
    assert check(again, orders()) == []
    assert len(Encoder.fit(orders(), again).encode(orders())) == N


def test_a_file_called_mobility_is_no_preset_and_its_name_is_kept_for_stays(tmp_path):
    proposal = infer(orders(), "mobility")
    path = tmp_path / "mobility.yaml"
    path.write_text(proposal.to_yaml())
    schema = EventSchema.from_yaml(path)
    assert schema == proposal.schema
    assert schema.name == "events"
    path.write_text("name: mobility\n" + proposal.to_yaml())
    with pytest.raises(DataError, match="kept for stays"):
        EventSchema.from_yaml(path)
    mobility_schema().to_yaml(path)
    assert EventSchema.from_yaml(path) == mobility_schema()


@pytest.mark.parametrize(
    ("column", "word"),
    [("card_id", "card"), ("userId", "user"), ("ID", ""), ("casino", "casino"), ("paid", "paid"), ("Loan_Key", "loan")],
)
def test_words_of_entities_come_from_the_names_of_columns(column, word):
    assert _word(column) == word


def test_derived_names_give_way_to_columns_of_the_same_name():
    proposal = infer(orders(hour=np.arange(N) % 24 + 0.5, x=np.arange(N) + 0.1))
    names = [f.name for f in proposal.schema.features]
    assert {"hour", "event_hour", "x", "position"} <= set(names)


def test_missing_values_are_said_and_not_filled():
    some = pa.array([None if i % 4 == 0 else float(i) for i in range(N)])
    proposal = infer(orders(amount=some))
    assert "25.0% are missing" in proposal.reasons["amount"]
    arrays = Encoder.fit(orders(amount=some), proposal.schema).encode(orders(amount=some))
    column = [f.name for f in arrays.fields].index("amount")
    assert arrays.missing[:, column].sum() == N // 4


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["small", "wide", "text", "few", "none"]), min_size=1, max_size=6),
    st.integers(0, 2**31),
)
def test_what_is_proposed_always_encodes(kinds, seed):
    rng = np.random.default_rng(seed)
    made = {
        "small": lambda: rng.normal(size=N),
        "wide": lambda: np.exp(rng.normal(0, 3, N)),
        "text": lambda: rng.choice(["a", "b", "c"], N),
        "few": lambda: rng.integers(0, 3, N),
        "none": lambda: pa.nulls(N, pa.float64()),
    }
    table = orders(**{f"column {i}": made[kind]() for i, kind in enumerate(kinds)})
    schema = infer(table).schema
    assert check(schema, table) == []
    arrays = Encoder.fit(table, schema).encode(table)
    assert np.isfinite(arrays.numbers).all()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (orders().drop_columns(["ordered_at"]), "no column holds times"),
        (orders().drop_columns(["customer", "store", "comment", "rating", "order_id"]), "who an event belongs to"),
        (orders().slice(0, 0), "empty"),
    ],
)
def test_a_table_that_cannot_be_events_is_refused_in_one_line(table, says):
    with pytest.raises(DataError, match=says):
        infer(table)


def test_every_fault_of_a_schema_is_found():
    schema = EventSchema(
        "orders",
        (
            Feature("amount", "numeric", transform="log"),
            Feature("store", "numeric"),
            Feature("comment", "categorical", max_categories=5),
            Feature("gone", "numeric"),
            Feature("empty", "numeric"),
        ),
        entity="customer",
        time="ordered_at",
        event_id="rating",
        timezone="Europe/Nowhere",
        habitat="nothing",
    )
    table = orders(amount=np.linspace(-1, 1, N), empty=pa.nulls(N, pa.float64()))
    text = "\n".join(check(schema, table))
    for word in (
        "'gone'",
        "below 0",
        "not a number",
        "most frequent",
        "holds no value",
        "repeats",
        "Nowhere",
        "habitat",
    ):
        assert word in text, word


def test_times_without_a_zone_and_text_that_is_no_time_are_said():
    schema = infer(orders()).schema
    naive = orders(ordered_at=pa.array(np.arange(N)).cast(pa.timestamp("us")))
    assert check(schema, naive) == []  # they are read in the zone that the schema names
    assert any("without a zone" in line for line in check(replace(schema, timezone="tz"), naive))
    assert any("expected times" in line for line in check(schema, orders(ordered_at=["soon"] * N)))


def test_the_verbs_print_a_file_and_explain_faults(tmp_path):
    events, written = tmp_path / "orders.parquet", tmp_path / "orders.yaml"
    pq.write_table(orders(), events)
    run = CliRunner().invoke
    printed = run(app, ["infer", str(events)])
    assert printed.exit_code == 0
    assert "# amount: a number with a long tail" in printed.output
    assert run(app, ["infer", str(events), "--out", str(written)]).exit_code == 0
    assert "nothing wrong" in run(app, ["check", str(written), str(events)]).output
    written.write_text(written.read_text().replace("entity: customer", "entity: nobody"))
    failed = run(app, ["check", str(written), str(events), "--json"])
    assert failed.exit_code == 1
    assert "nobody" in json.loads(failed.output)["problems"][0]
    assert run(app, ["check", str(written), str(events)]).exit_code == 1


def test_what_is_inferred_from_naive_times_passes_the_check():
    times = pa.array(np.arange(40) * 3_600_000_000 + 1_704_067_200_000_000, pa.timestamp("us"))
    table = pa.table({"card_id": ["a", "b"] * 20, "time": times, "amount": np.arange(40) % 7 + 0.5})
    assert check(infer(table, "cards").schema, table) == []
