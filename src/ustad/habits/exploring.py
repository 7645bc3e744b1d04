"""How much of what people do is new beside a history of so many days: less, the longer it is.

People try out new places ever more seldom: in D days they come to about D^0.6 places, and else go where they have been,
the more often the more they were there (Song et al. 2010, "Modelling the scaling properties of human mobility"). So in
a week that is compared with one week more is new than in later weeks that are compared with two. In go lengths in
days, out come shares.
"""

from __future__ import annotations

#: New places of a day fall with the days so far, to this power.
FALL = 0.4


def share_new(days_known: float, ahead: float) -> float:
    """Which share of visits goes to places that a history of `days_known` days lacks, over the `ahead` days after it,
    but for a factor that is of the people.

    On day t a share t^-b goes to places never seen before. Places found since the history ended have drawn visits as
    all others do, in proportion to their number so far: ∫ s^-b / s ds from the end of the history to t.
    """
    end = days_known + ahead
    mean_fall = (end ** (1 - FALL) - days_known ** (1 - FALL)) / ((1 - FALL) * ahead)
    return (days_known**-FALL - mean_fall) / FALL + mean_fall


def share_remaining(known_before: int, week: int, days_known: int, absorb_after: int) -> float:
    """How much less is new beside the whole history of `days_known` days than in a calibrating `week` of so many days
    beside the `known_before` days before it: a factor of at most 1.

    Nobody knows how far ahead a model will be used: as many days as are known, and no more than a history lags behind.
    """
    if min(known_before, week, days_known) < 1:
        return 1.0
    ahead = min(days_known, absorb_after) if absorb_after else days_known
    return min(1.0, share_new(days_known, ahead) / share_new(known_before, week))
