"""What a city offers: activities of people, categories of places, and which place serves which activity."""

from __future__ import annotations

from dataclasses import dataclass

HOME, WORK, SCHOOL, UNIVERSITY, CHILDCARE, BUY, SERVICES, EAT = range(8)
ERRANDS, RECREATION, EXERCISE, VISIT, HEALTH, WORSHIP, HOTEL, TRANSPORT = range(8, 16)
ACTIVITIES = (
    "home", "work", "school", "university", "childcare", "buy goods", "services", "eat out",
    "errands", "recreation", "exercise", "visit", "health care", "worship", "hotel", "transport",
)  # fmt: skip
N_ACTIVITIES = len(ACTIVITIES)


@dataclass(frozen=True)
class Category:
    """A kind of place: how many per 1,000 places, and how much it prefers business districts (0 … 1)."""

    name: str
    activities: tuple[int, ...]
    share: float
    urbanity: float


#: Homes first; they belong to households and are not part of the shares.
CATEGORIES = (
    Category("house", (HOME, VISIT), 0, 0.0),
    Category("apartment", (HOME, VISIT), 0, 0.0),
    Category("office", (WORK,), 250, 0.85),
    Category("factory", (WORK,), 70, 0.4),
    Category("warehouse", (WORK,), 40, 0.3),
    Category("hospital", (WORK, HEALTH), 4, 0.5),
    Category("clinic", (WORK, HEALTH), 22, 0.5),
    Category("pharmacy", (HEALTH, ERRANDS), 18, 0.4),
    Category("school", (WORK, SCHOOL), 26, 0.05),
    Category("high school", (WORK, SCHOOL), 10, 0.05),
    Category("university", (WORK, UNIVERSITY), 4, 0.5),
    Category("kindergarten", (CHILDCARE, WORK), 24, 0.05),
    Category("supermarket", (WORK, BUY), 34, 0.2),
    Category("convenience store", (BUY,), 52, 0.3),
    Category("mall", (WORK, BUY), 7, 0.6),
    Category("shop", (WORK, BUY), 90, 0.7),
    Category("hardware store", (BUY,), 10, 0.3),
    Category("gas station", (BUY, SERVICES), 22, 0.2),
    Category("bank", (SERVICES, WORK), 20, 0.7),
    Category("hairdresser", (SERVICES,), 30, 0.4),
    Category("car repair", (SERVICES,), 16, 0.3),
    Category("restaurant", (WORK, EAT), 75, 0.65),
    Category("cafe", (EAT,), 48, 0.7),
    Category("fast food", (EAT,), 42, 0.5),
    Category("bar", (RECREATION, EAT), 18, 0.8),
    Category("post office", (ERRANDS,), 8, 0.4),
    Category("civic office", (WORK, ERRANDS), 10, 0.7),
    Category("library", (ERRANDS, RECREATION), 6, 0.4),
    Category("cinema", (RECREATION,), 5, 0.6),
    Category("park", (RECREATION, EXERCISE), 40, 0.1),
    Category("stadium", (RECREATION,), 1, 0.5),
    Category("beach", (RECREATION,), 3, 0.0),
    Category("museum", (RECREATION,), 4, 0.8),
    Category("gym", (EXERCISE,), 22, 0.5),
    Category("sports field", (EXERCISE,), 14, 0.1),
    Category("place of worship", (WORSHIP,), 24, 0.2),
    Category("hotel", (HOTEL,), 10, 0.9),
    Category("station", (TRANSPORT, ERRANDS), 6, 0.6),
    Category("airport", (TRANSPORT, WORK), 1, 0.2),
)
BY_NAME = {category.name: code for code, category in enumerate(CATEGORIES)}
HOUSE, APARTMENT = BY_NAME["house"], BY_NAME["apartment"]

NUMOSIM_CLASSES = (
    "house", "apartment", "office", "factory", "hospital", "clinic", "pharmacy", "school", "high school",
    "university", "kindergarten", "supermarket", "convenience store", "mall", "shop", "gas station", "bank",
    "hairdresser", "restaurant", "cafe", "fast food", "post office", "civic office", "cinema", "park", "gym",
    "place of worship", "hotel",
)  # fmt: skip
TOWN_CLASSES = (
    "house", "apartment", "office", "factory", "school", "university", "supermarket", "shop", "bank",
    "restaurant", "cafe", "bar", "park", "gym", "clinic", "civic office", "place of worship", "hotel",
)  # fmt: skip
#: Seven coarse classes: what the places of a small city are called when only their use is known.
COARSE_CLASSES = {
    "house": "home", "apartment": "home", "office": "work", "factory": "work", "civic office": "services",
    "school": "education", "high school": "education", "university": "education", "supermarket": "shopping",
    "shop": "shopping", "mall": "shopping", "restaurant": "food", "cafe": "food", "clinic": "services",
    "bank": "services", "place of worship": "services", "park": "leisure", "gym": "leisure",
    "cinema": "leisure", "hotel": "leisure", "pharmacy": "services",
}  # fmt: skip
