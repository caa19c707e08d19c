"""What a device lends and borrows: the table `[lending]`."""

from dataclasses import dataclass

from swarmd.config.option import option


@dataclass(frozen=True, slots=True)
class LendingSection:
    """Inference between devices of the swarm: this one's worker for others, theirs for its programs."""

    lend: bool = option(False, "Offer what `inference.models` serves to the other members; needs `inference.listen`.")
    borrow: bool = option(
        False,
        "Programs here may have another member answer, request by request (`Swarmd-Borrow`); needs `inference.listen`.",
    )
    tensors: str = option(
        "",
        "Address and port, such as `0.0.0.0:7984`, where lenders fetch what is larger than 256 KiB, and of a lender "
        "the next one what it computed of a model in parts; empty: nothing larger leaves this device.",
    )
    plan: str = option(
        "", "File of plans: which better models are asked where the own one is unsure (`Swarmd-Borrow: unsure`)."
    )
    split: str = option(
        "",
        "File of models in parts, as `swarmd bundle cut` writes it: parts run here or there (`Swarmd-Borrow: split`).",
    )
    leave: str = option(
        "frames",
        "What may leave at most, whatever programs ask for: `never` anything, `features` that a part of a model has "
        "computed here, `crops` of pictures (boxes of the own model, all else grey), or whole inputs (`frames`).",
        choices=("never", "features", "crops", "frames"),
    )
    jpeg_quality: int = option(
        0,
        "Quality, to 100, of pictures that may leave as JPEG where the link is slow, so that lenders see other pixels; "
        "0: lenders see the very pixels, whatever the link.",
        low=0,
        high=100,
    )
    lend_to: tuple[str, ...] = option(
        (), "Names that members were enrolled under: only they may borrow here; empty: every member."
    )
    borrow_from: tuple[str, ...] = option(
        (), "The same of lenders: only they see what programs here let leave this device; empty: every member."
    )
    lend_to_roles: tuple[str, ...] = option(
        (), "Roles of certificates (`swarmd keys enrol --role`) of which a borrower must have one; empty: none needed."
    )
    lend_to_must: tuple[str, ...] = option(
        (),
        "What a borrower must be besides: `attested` (its certificate has that role), `same-owner` (its certificate "
        "and this device's have one and the same role `owner:NAME`).",
    )
    borrow_from_roles: tuple[str, ...] = option((), "As `lend_to_roles`, of lenders.")
    borrow_from_must: tuple[str, ...] = option((), "As `lend_to_must`, of lenders.")
    temperature_max_c: float = option(75.0, "Above this temperature of the device nothing is lent.", low=0, high=150)
    battery_min: float = option(0.4, "Below this share of the charge nothing is lent.", low=0.0, high=1.0)
    max_jobs: int = option(16, "Requests of others at once.", low=1, high=64)
    max_jobs_each: int = option(4, "Of these, of one borrower.", low=1, high=64)
    price_hour: float = option(
        0.0,
        "What an hour of inference costs who borrows it here, in the fleet's own unit of money; offers say it.",
        low=0.0,
        high=1e9,
    )
    price_max: float = option(
        0.0,
        "What one borrowed request may cost, of the same unit; 0: only members that ask nothing are asked.",
        low=0.0,
        high=1e6,
    )
    price_hour_max: float = option(
        0.0, "What all borrowed requests of an hour may cost; needed beside `price_max`.", low=0.0, high=1e6
    )
    mib_hour_max: float = option(
        0.0, "MiB of requests that may leave in an hour; 0: as many as lenders' tickets allow.", low=0.0, high=1e6
    )
    charge_max: float = option(
        1.0,
        "Share of a lender's charge that one request may take, where the lender says what it takes.",
        low=0.0,
        high=1.0,
    )
    money_s: float = option(
        0.0,
        "Seconds of waiting that a unit of money is worth: a cheaper lender may be so much slower.",
        low=0.0,
        high=1e9,
    )
    charge_s: float = option(
        0.0, "Seconds of waiting that a hundredth of a lender's charge is worth.", low=0.0, high=1e6
    )
    battery_wh: float = option(
        0.0, "What this device's battery holds, watt hours; 0: as its gauge says, if it has one.", low=0.0, high=1e6
    )
