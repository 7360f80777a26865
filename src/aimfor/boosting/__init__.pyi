from ._average import ForestAverage as ForestAverage
from ._forest import Forest as Forest
from ._lightgbm import from_lightgbm as from_lightgbm
