from ._files import story as story
from ._files import write_page as write_page
from ._importance import explain as explain
from ._measure import MAX_POINTS as MAX_POINTS
from ._measure import UNSEEN as UNSEEN
from ._measure import measure_label as measure_label
from ._measure import rates_at as rates_at
