from ._choice import Engine as Engine
from ._choice import engine as engine
from ._choice import engine_for as engine_for
from ._entries import Entries as Entries
from ._entries import entries as entries
from ._protocol import CountingEngine as CountingEngine
from ._protocol import Pass as Pass
from ._reference import sums_and_gradient as sums_and_gradient
