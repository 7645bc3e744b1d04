"""Baselines, evaluation and experiments, for people who compare methods. Nothing else imports it."""

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "baselines.base",
    "baselines.protocol",
    "baselines.search",
    "baselines.storage",
    "evaluation.benchmark_page",
    "evaluation.budgets",
    "evaluation.chosen_settings",
    "evaluation.detection_metrics",
    "evaluation.experiments",
    "evaluation.gps",
    "evaluation.page",
    "evaluation.public_data",
    "evaluation.recordings",
    "evaluation.result_files",
    "evaluation.runner",
    "evaluation.sources",
    "red_team",
    "red_team.injections",
    "search_network",
    "search_settings",
)
