"""Live rows of a model that scores by habits: whose columns are whose."""

from ustad.service.live import _joined


def test_what_was_expected_and_how_far_it_was_off_is_of_one_source():
    network = {"expected_start": 540.0, "error_start": 12.0, "loss_start": 0.3, "expected_poi": "cafe", "score": 0.9}
    habits = {
        "expected_start": None,
        "error_start": 400.0,
        "expected_poi": "home",
        "score": 7.0,
        "reason": "Expected …",
    }
    row = _joined(network, habits)
    assert (row["expected_start"], row["error_start"], row["expected_poi"]) == (540.0, 12.0, "cafe")
    assert (row["score"], row["reason"], row["loss_start"]) == (7.0, "Expected …", 0.3)


def test_what_only_habits_know_is_kept():
    assert _joined({"loss_x": 1.0}, {"expected_lat": 34.0})["expected_lat"] == 34.0
