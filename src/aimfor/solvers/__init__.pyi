from ._solve import solve_by_lp as solve_by_lp
from ._solve import solve_by_search as solve_by_search
from ._solve import warn_of_infeasible as warn_of_infeasible
