"""The part of a record that says what may explain a slow node: clocks, limits, links and faults of its parts."""

from throughline.records.entry import Count, Entry, NonNegative, Whole


class Interface(Entry):
    """A network interface that is up. `gbit_per_s` is None if the system does not state its speed."""

    name: str
    gbit_per_s: NonNegative | None


class Port(Interface):
    """A port of an InfiniBand or RoCE device. `link_layer` is `InfiniBand` or `Ethernet`."""

    state: str | None
    link_layer: str | None


class MachineFacts(Entry):
    """One node. Clocks are over all of its cores: the lowest limit, the highest possible, and the median at present.

    Counts are since the machine was started.
    """

    cpu: str | None
    cpu_cores: Count | None
    cpu_quota_cores: NonNegative | None
    numa_nodes: Count | None
    kernel: str | None
    driver: str | None
    transparent_hugepages: str | None
    cpu_governor: str | None
    cpu_clock_mhz: NonNegative | None
    cpu_clock_limit_mhz: NonNegative | None
    cpu_clock_most_mhz: NonNegative | None
    cpu_boost: bool | None
    cpu_throttled: Whole | None
    memory_bytes: Whole | None
    memory_channels: Whole | None
    memory_errors_corrected: Whole | None
    memory_errors_uncorrected: Whole | None
    network: list[Interface] | None
    infiniband: list[Port] | None


class GpuFacts(Entry):
    """One GPU. `..._most` is what the GPU and its slot can do, `..._set` an application clock.

    ECC errors count since the driver was loaded, or ever. `nvlinks` says of each link whether it is active.
    """

    name: str | None
    memory_bytes: Whole | None
    power_limit_w: NonNegative | None
    power_limit_default_w: NonNegative | None
    power_limit_enforced_w: NonNegative | None
    sm_clock_set_mhz: Whole | None
    memory_clock_set_mhz: Whole | None
    sm_clock_most_mhz: Whole | None
    memory_clock_most_mhz: Whole | None
    ecc: bool | None
    mig: bool | None
    pcie_generation: Whole | None
    pcie_generation_most: Whole | None
    pcie_width: Whole | None
    pcie_width_most: Whole | None
    pcie_replays: Whole | None
    nvlinks: list[bool] | None
    temperature_slowdown_c: Whole | None
    temperature_most_c: Whole | None
    ecc_corrected: Whole | None
    ecc_uncorrected: Whole | None
    ecc_corrected_ever: Whole | None
    ecc_uncorrected_ever: Whole | None
    rows_remapped_corrected: Whole | None
    rows_remapped_uncorrected: Whole | None
    rows_pending: bool | None
    rows_failed: bool | None
    pages_retired: Whole | None
    numa_node: Whole | None


class NodeHardware(Entry):
    """The facts of one node and of the run's GPUs in it, in the order of its ranks. They were read after the window.

    `reasons` says why a fact is None: by `machine.<fact>`, `devices.<index>.<fact>`, or `devices` if there are none.
    """

    node: Whole
    machine: MachineFacts
    devices: list[GpuFacts]
    reasons: dict[str, str]
