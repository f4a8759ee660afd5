"""The faults of `make chaos`, in one table: that is where a new one goes."""

from faults.blip import Blip
from faults.cut import Cut
from faults.disk import FullDisk
from faults.fault import Fault
from faults.forgotten import Forgotten
from faults.half_open import HalfOpen
from faults.kill import Kill
from faults.limits import DescriptorLimit, MemoryLimit
from faults.rail import RailLoss
from faults.reset import Reset
from faults.settings import OtherSettings
from faults.slow import SlowLine
from faults.startup import StartUp
from faults.stop import Stop
from faults.training import TrainingKill, TrainingStop
from faults.vanish import LongCut, Vanish
from faults.zombie import Zombie

__all__ = ["FAULTS", "Fault"]

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Kill(),
        Stop(),
        Zombie(),
        Cut(),
        Reset(),
        StartUp(),
        Vanish(),
        LongCut(),
        Blip(),
        SlowLine(),
        HalfOpen(),
        RailLoss(),
        Forgotten(),
        DescriptorLimit(),
        MemoryLimit(),
        FullDisk(),
        OtherSettings(),
        TrainingKill(),
        TrainingStop(),
    )
}
