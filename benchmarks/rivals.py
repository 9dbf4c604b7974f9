"""Other MIP solvers on the same big-M model, for comparison: SCIP and Gurobi, when they are installed."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator

import numpy as np

from layercert.geometry import Cells
from layercert.problem import Problem
from layercert.search.mip import Encoding, big_m_model

#: (problem, U, seconds) -> (lower, upper) over all clauses.
Rival = Callable[[Problem, float, float], tuple[float, float]]


def available() -> dict[str, Rival]:
    found: dict[str, Rival] = {}
    if importlib.util.find_spec("gurobipy"):
        found["gurobi"] = gurobi
    if importlib.util.find_spec("pyscipopt"):
        found["scip"] = scip
    return found


def rows_of(model: Encoding) -> Iterator[tuple[list[int], list[float], float, float]]:
    """Columns, coefficients and ends of each row; lengths are counted in `model.ball`."""
    rows = model.scaled()
    for i, (low, high) in enumerate(zip(rows.low.tolist(), rows.high.tolist(), strict=True)):
        part = slice(rows.ends[i], rows.ends[i + 1])
        yield rows.columns[part].tolist(), rows.value[part].tolist(), low, high


def gurobi(problem: Problem, U: float, seconds: float) -> tuple[float, float]:
    import gurobipy as gp

    lower = upper = U
    with gp.Env(params={"OutputFlag": 0, "Threads": 1}) as env:
        for clause in problem.clauses:
            model = big_m_model(Cells(problem), clause, upper)
            with gp.Model(env=env) as m:
                kinds = np.where(model.binary, "B", "C")
                v = m.addMVar(len(model.low), lb=np.array(model.low), ub=np.array(model.high), vtype=kinds)
                m.setObjective(np.array(model.cost) @ v, gp.GRB.MINIMIZE)
                for index, value, low, high in rows_of(model):
                    row = gp.LinExpr(value, [v[i].item() for i in index])
                    if low == high:
                        m.addLConstr(row, "=", low)
                    elif math.isfinite(low):
                        m.addLConstr(row, ">", low)
                    else:
                        m.addLConstr(row, "<", high)
                m.Params.TimeLimit, m.Params.MIPGap, m.Params.FeasibilityTol = seconds, 1e-7, 1e-9
                try:
                    m.optimize()
                except gp.GurobiError:  # the licence that comes with the package is limited in size
                    return 0.0, math.inf
                if m.Status == gp.GRB.INFEASIBLE:
                    continue
                lower = min(lower, m.ObjBound * model.ball)
                if m.SolCount:
                    upper = min(upper, m.ObjVal * model.ball)
    return lower, upper


def scip(problem: Problem, U: float, seconds: float) -> tuple[float, float]:
    import pyscipopt

    lower = upper = U
    for clause in problem.clauses:
        model = big_m_model(Cells(problem), clause, upper)
        m = pyscipopt.Model()
        m.hideOutput()
        columns = [
            m.addVar(lb=lo, ub=hi, vtype="B" if b else "C", obj=c)
            for lo, hi, b, c in zip(model.low, model.high, model.binary, model.cost, strict=True)
        ]
        for index, value, low, high in rows_of(model):
            row = pyscipopt.quicksum(a * columns[i] for a, i in zip(value, index, strict=True))
            if low == high:
                m.addCons(row == low)
            elif math.isfinite(low):
                m.addCons(row >= low)
            else:
                m.addCons(row <= high)
        m.setParam("limits/time", seconds)
        m.setParam("limits/gap", 1e-7)
        m.optimize()
        if m.getStatus() == "infeasible":
            continue
        lower = min(lower, m.getDualbound() * model.ball)
        if m.getNSols():
            upper = min(upper, m.getObjVal() * model.ball)
    return lower, upper
