"""The one table of config keys: validation, `config list` and docs/configuration.md all read it."""

from __future__ import annotations

from queuectl.errors import InvalidInput, did_you_mean

Number = int | float


class Setting:
    """One key: its type, default, range and meaning."""

    __slots__ = ("alias", "at_least", "at_most", "default", "help", "kind", "name")

    def __init__(
        self,
        name: str,
        kind: type[int] | type[float],
        default: Number,
        help: str,
        at_least: Number = 0,
        at_most: Number = 1_000_000_000,
        alias: str = "",
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.help = help
        self.at_least = at_least
        self.at_most = at_most
        self.alias = alias

    @property
    def range(self) -> str:
        kind = "a whole number" if self.kind is int else "a number"
        return f"{kind} from {self.at_least} to {self.at_most}"

    def check(self, value: object) -> Number:
        """The value, if it is of this setting's type and range."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        if (whole or (isinstance(value, float) and self.kind is float)) and (
            self.at_least <= value <= self.at_most  # type: ignore[operator]
        ):
            return value  # type: ignore[return-value]
        raise InvalidInput(f'"{shown(value)}" does not fit "{self.name}"', f"it takes {self.range}")

    def parse(self, text: str) -> Number:
        try:
            value = int(text) if text.strip().lstrip("+-").isdigit() else float(text)
        except ValueError:
            raise InvalidInput(f'"{text[:80]}" does not fit "{self.name}"', f"it takes {self.range}") from None
        return self.check(value)


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            "max_retries",
            int,
            3,
            "Failed runs allowed: a job is dead when its attempts reach this. Taken by a job when it is enqueued.",
            at_most=1_000_000,
            alias="default_max_retries",
        ),
        Setting(
            "backoff_base",
            float,
            2,
            "The delay before the next run is this to the power of the attempts, in seconds. "
            "Taken by a job when it is enqueued.",
            at_most=1000,
        ),
        Setting("backoff_max", float, 3600, "The longest delay between two runs, in seconds."),
        Setting("backoff_jitter", float, 0, "The share of the delay that is random.", at_most=1),
        Setting(
            "snooze_limit",
            int,
            20,
            "How often exit code 75 puts a job off without counting as a failure; 0 = it is one like any other.",
            at_most=1_000_000,
        ),
        Setting(
            "job_timeout",
            float,
            0,
            "Seconds after which a run is killed with all its processes; 0 = never. "
            "Taken by a job when it is enqueued.",
        ),
        Setting(
            "worker_poll_interval",
            float,
            1,
            "Seconds between two looks of an idle worker. Only a safety net: new work is announced.",
            at_least=0.01,
            at_most=3600,
            alias="poll_interval",
        ),
        Setting("crash_limit", int, 3, "Runs lost with their worker after which a job is dead.", at_least=1),
        Setting(
            "lease_timeout",
            float,
            30,
            "Seconds without a sign of life after which a worker on another machine counts as lost.",
            at_least=1,
        ),
        Setting("kill_grace", float, 5, "Seconds between TERM and KILL when a run is ended.", at_most=86400),
        Setting(
            "output_limit",
            int,
            2000,
            "Characters of each stream of the last run kept in the database.",
            at_most=1_000_000,
        ),
        Setting(
            "log_max_bytes",
            int,
            10 * 1024 * 1024,
            "Size of one run's log. Beyond it the start and the end are kept, and the cut is marked.",
            at_least=1024,
            at_most=1 << 40,
        ),
        Setting(
            "retention_days",
            float,
            0,
            "Completed and cancelled jobs older than this are pruned with their logs; 0 = keep. "
            "Dead jobs wait for you.",
            at_most=36500,
        ),
    )
}


def shown(value: object) -> str:
    """A value for an error message; Python refuses to print numbers of thousands of digits."""
    if isinstance(value, int) and abs(value) > 10**30:
        return "a huge number"
    return str(value)[:80]


Config = dict[str, Number]


def find(name: str) -> Setting:
    """The setting of that name or alias; `max-retries` and `max_retries` are the same."""
    key = name.strip().lower().replace("-", "_")
    for setting in SETTINGS.values():
        if key and key in (setting.name, setting.alias):
            return setting
    raise InvalidInput(f'there is no setting "{name}"', did_you_mean(key, list(SETTINGS)))


def effective(stored: list[tuple[str, str]]) -> Config:
    """Every setting's value: what is stored, else its default."""
    config: Config = {name: setting.default for name, setting in SETTINGS.items()}
    for key, text in stored:
        try:
            config[key] = SETTINGS[key].parse(text)
        except (KeyError, InvalidInput):  # stored by another version, or by hand: the default serves
            pass
    return config
