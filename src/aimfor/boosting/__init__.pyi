from ._average import ForestAverage as ForestAverage
from ._forest import Forest as Forest
from ._lightgbm import from_lightgbm as from_lightgbm
from ._search import FoundForest as FoundForest
from ._search import Sample as Sample
from ._search import search as search
