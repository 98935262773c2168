"""Solves a device by devsim, which uses Newton's method for all equations together.

The first argument is a JSON file with the grid, the figures of each row and node, and voltages. The
output is a JSON object with the potential of each node and the currents of the contacts.
"""

import json
import math
import sys
import time

import devsim as ds

DEVICE, REGION = "device", "region"


def fermi(eta):
    """Returns the Fermi integral of order 1/2 and its derivative."""
    if eta < -38.0:
        return math.exp(eta), math.exp(eta)
    strip = math.sqrt((math.hypot(eta, math.pi) - eta) / 2.0)
    step = min(0.4, 2.0 * math.pi * strip / 38.0)
    value = slope = 0.0
    for k in range(1, int(math.sqrt(max(eta, 0.0) + 40.0) / step) + 2):
        square = (k * step) ** 2
        e = math.exp(min(square - eta, 700.0))
        value += square / (1.0 + e)
        slope += square / (1.0 + e) / (1.0 + 1.0 / e)
    scale = 4.0 * step / math.sqrt(math.pi)
    return scale * value, scale * slope


def inverse(value):
    """Returns the argument of which a value is the Fermi integral."""
    eta = math.log(value) if value < 1.0 else (value * 1.3293403881791370) ** (2.0 / 3.0)
    for _ in range(60):
        found, slope = fermi(eta)
        change = math.log(value / found) * found / slope
        eta += change
        if abs(change) < 1e-14 * max(abs(eta), 1.0):
            break
    return eta


def lacks(ratio, degenerate):
    """Returns the logarithm of the factor by which a density is below Boltzmann's."""
    return math.log(ratio) - inverse(ratio) if degenerate > 0.0 else 0.0


def lacks_slope(ratio, degenerate):
    """Returns its derivative by the ratio of density and density of states."""
    return 1.0 / ratio - 1.0 / fermi(inverse(ratio))[1] if degenerate > 0.0 else 0.0


def fill(eta, states, degenerate):
    return states * (fermi(eta)[0] if degenerate else math.exp(eta))


def make_mesh(given):
    """Makes the mesh of the grid: each rectangle is two triangles."""
    x, y = given["x"], given["y"]
    cols, rows = len(x), len(y)
    coordinates = [c for yy in y for xx in x for c in (xx, yy, 0.0)]
    elements = []
    for row in range(rows - 1):
        for col in range(cols - 1):
            a = row * cols + col
            b, c, d = a + 1, a + cols, a + cols + 1
            elements += [2, 0, a, b, c, 2, 0, b, d, c]
    names = [REGION]
    for contact in given["contacts"]:
        names.append(contact["name"])
        nodes = contact["nodes"]
        for one, other in zip(nodes, nodes[1:]):
            elements += [1, len(names) - 1, one, other]
    ds.create_gmsh_mesh(
        mesh="mesh", coordinates=coordinates, physical_names=names, elements=elements
    )
    ds.add_gmsh_region(mesh="mesh", gmsh_name=REGION, region=REGION, material="any")
    for contact in given["contacts"]:
        name = contact["name"]
        ds.add_gmsh_contact(
            mesh="mesh", gmsh_name=name, region=REGION, name=name, material="metal"
        )
    ds.finalize_mesh(mesh="mesh")
    ds.create_device(mesh="mesh", device=DEVICE)


def place_of_nodes(given):
    """Returns the place in the grid of each node of devsim."""
    x = {value: at for at, value in enumerate(given["x"])}
    y = {value: at for at, value in enumerate(given["y"])}
    xs = ds.get_node_model_values(device=DEVICE, region=REGION, name="x")
    ys = ds.get_node_model_values(device=DEVICE, region=REGION, name="y")
    return [y[b] * len(x) + x[a] for a, b in zip(xs, ys)]


def set_nodes(name, values):
    ds.node_solution(device=DEVICE, region=REGION, name=name)
    ds.set_node_values(device=DEVICE, region=REGION, name=name, values=values)
    ds.edge_from_node_model(device=DEVICE, region=REGION, node_model=name)


def node(name, equation):
    ds.node_model(device=DEVICE, region=REGION, name=name, equation=equation)


def edge(name, equation):
    ds.edge_model(device=DEVICE, region=REGION, name=name, equation=equation)


def bands(given):
    """Returns the edges of both bands for each row, relative to the first row's middle."""
    thermal = given["thermal"]
    first = given["rows"][0]
    ratio = first["states"][1] / first["states"][0]
    zero = -first["affinity"] - first["gap"] / 2.0 - 0.5 * thermal * math.log(ratio)
    return [
        ((zero + r["affinity"]) / thermal, (-zero - r["affinity"] - r["gap"]) / thermal)
        for r in given["rows"]
    ]


def neutral(doping, row, edges):
    """Returns the potential without charge, in units of the thermal voltage."""
    low, high = -300.0, 300.0
    for _ in range(70):
        middle = (low + high) / 2.0
        n = fill(middle + edges[0], row["states"][0], row["fermi"])
        p = fill(edges[1] - middle, row["states"][1], row["fermi"])
        low, high = (middle, high) if p - n + doping > 0.0 else (low, middle)
    return (low + high) / 2.0


def set_figures(given, places):
    """Gives each node its figures, and the densities and potential of the neutral device."""
    cols, edges = len(given["x"]), bands(given)
    rows = [given["rows"][place // cols] for place in places]
    edges = [edges[place // cols] for place in places]
    doping = [given["doping"][place] for place in places]
    known = {}
    for r, e, d in zip(rows, edges, doping):
        key = (e, d, r["fermi"])
        if key not in known:
            known[key] = neutral(d, r, e)
    psi = [known[e, d, r["fermi"]] for r, e, d in zip(rows, edges, doping)]
    n = [fill(s + e[0], r["states"][0], r["fermi"]) for s, e, r in zip(psi, edges, rows)]
    p = [fill(e[1] - s, r["states"][1], r["fermi"]) for s, e, r in zip(psi, edges, rows)]
    thermal = given["thermal"]
    product = [r["states"][0] * r["states"][1] * math.exp(-r["gap"] / thermal) for r in rows]
    for name, values in {
        "Doping": doping,
        "Eps": [r["permittivity"] * given["vacuum"] for r in rows],
        "Dn": [r["mobility"][0] * thermal for r in rows],
        "Dp": [r["mobility"][1] * thermal for r in rows],
        "TauN": [r["lifetime"][0] for r in rows],
        "TauP": [r["lifetime"][1] for r in rows],
        "Nc": [r["states"][0] for r in rows],
        "Nv": [r["states"][1] for r in rows],
        "EdgeN": [e[0] + math.log(r["states"][0]) for r, e in zip(rows, edges)],
        "EdgeP": [e[1] + math.log(r["states"][1]) for r, e in zip(rows, edges)],
        "Full": [1.0 if r["fermi"] else 0.0 for r in rows],
        "Ni2": product,
        "Psi0": [thermal * s for s in psi],
        "N0": n,
        "P0": p,
        "Potential": [thermal * s for s in psi],
        "Electrons": n,
        "Holes": p,
    }.items():
        set_nodes(name, values)
    ds.set_parameter(name="Vt", value=thermal)
    ds.set_parameter(name="Q", value=given["charge"])


def make_currents():
    """Makes the fluxes of Scharfetter and Gummel, with their derivatives."""
    for carrier, sign, short, states in (
        ("Electrons", "", "N", "Nc"),
        ("Holes", "-", "P", "Nv"),
    ):
        node(f"Lacks{short}", f"lacks({carrier}/{states}, Full)")
        node(f"Lacks{short}D", f"lacks_slope({carrier}/{states}, Full)/{states}")
        node(f"Level{short}", f"{sign}Potential/Vt + Edge{short} + Lacks{short}")
        for name in (f"Lacks{short}D", f"Level{short}"):
            ds.edge_from_node_model(device=DEVICE, region=REGION, node_model=name)
        v, b = f"V{short}", f"Bern{short}"
        edge(v, f"Level{short}@n0 - Level{short}@n1")
        edge(b, f"B({v})")
        charge = "" if carrier == "Electrons" else "-"
        pref = f"{charge}Q*0.5*(D{short.lower()}@n0 + D{short.lower()}@n1)*EdgeInverseLength"
        one, two = f"{carrier}@n0", f"{carrier}@n1"
        name = f"{carrier}Current"
        edge(name, f"{pref}*({two}*({b} + {v}) - {one}*{b})")
        edge(f"{name}V", f"{pref}*({two}*(dBdx({v}) + 1) - {one}*dBdx({v}))")
        edge(f"{name}:Potential@n0", f"{sign}{name}V/Vt")
        edge(f"{name}:Potential@n1", f"-({sign}{name}V/Vt)")
        edge(f"{name}:{carrier}@n0", f"-{pref}*{b} + {name}V*Lacks{short}D@n0")
        edge(f"{name}:{carrier}@n1", f"{pref}*({b} + {v}) - {name}V*Lacks{short}D@n1")


def make_recombination():
    """Makes the rate of Shockley, Read and Hall, with its derivatives."""
    node("Bal", "Ni2*exp(LacksN + LacksP)")
    node("Den", "TauP*(Electrons + Ni2^0.5) + TauN*(Holes + Ni2^0.5)")
    node("Rate", "(Electrons*Holes - Bal)/Den")
    node("Rate:Electrons", "(Holes - Bal*LacksND)/Den - Rate*TauP/Den")
    node("Rate:Holes", "(Electrons - Bal*LacksPD)/Den - Rate*TauN/Den")
    for name, sign in (("GenN", "-"), ("GenP", "")):
        node(name, f"{sign}Q*Rate")
        for by in ("Electrons", "Holes"):
            node(f"{name}:{by}", f"{sign}Q*Rate:{by}")


def make_equations(given):
    ds.symdiff(expr="declare(lacks_slope(x,y))")
    ds.symdiff(expr="define(lacks(x,y), lacks_slope(x,y), 0)")
    ds.register_function(name="lacks", procedure=lacks, nargs=2)
    ds.register_function(name="lacks_slope", procedure=lacks_slope, nargs=2)
    make_currents()
    make_recombination()
    eps = "0.5*(Eps@n0 + Eps@n1)*EdgeInverseLength"
    edge("Field", f"{eps}*(Potential@n0 - Potential@n1)")
    edge("Field:Potential@n0", eps)
    edge("Field:Potential@n1", f"-{eps}")
    node("Charge", "-Q*(Holes - Electrons + Doping)")
    node("Charge:Electrons", "Q")
    node("Charge:Holes", "-Q")
    common = {"device": DEVICE, "region": REGION}
    ds.equation(
        name="PotentialEquation", variable_name="Potential", node_model="Charge",
        edge_model="Field", variable_update="log_damp", **common,
    )
    for carrier, gen in (("Electrons", "GenN"), ("Holes", "GenP")):
        ds.equation(
            name=f"{carrier}Equation", variable_name=carrier, node_model=gen,
            edge_model=f"{carrier}Current", variable_update="positive", **common,
        )
    for contact in given["contacts"]:
        name = contact["name"]
        ds.set_parameter(device=DEVICE, name=f"{name}_bias", value=0.0)
        for variable, value in (
            ("Potential", f"{name}_bias + Psi0"),
            ("Electrons", "N0"),
            ("Holes", "P0"),
        ):
            model, more = f"{name}{variable}", {}
            ds.contact_node_model(
                device=DEVICE, contact=name, name=model, equation=f"{variable} - ({value})"
            )
            ds.contact_node_model(
                device=DEVICE, contact=name, name=f"{model}:{variable}", equation="1"
            )
            if variable != "Potential":
                more["edge_current_model"] = f"{variable}Current"
            ds.contact_equation(
                device=DEVICE, contact=name, name=f"{variable}Equation", node_model=model, **more
            )


def solve():
    """Solves to rounding: Newton's method needs a step more than its tolerance says."""
    for error in (1e-9, 1e-11):
        ds.solve(
            type="dc", absolute_error=1e16, relative_error=error, maximum_iterations=200,
            maximum_divergence=60,
        )


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        given = json.load(file)
    make_mesh(given)
    places = place_of_nodes(given)
    set_figures(given, places)
    make_equations(given)
    solutions = []
    start = time.process_time()
    for voltages in given["voltages"]:
        for contact, voltage in zip(given["contacts"], voltages):
            ds.set_parameter(device=DEVICE, name=f"{contact['name']}_bias", value=voltage)
        solve()
        currents = [
            sum(
                ds.get_contact_current(device=DEVICE, contact=c["name"], equation=f"{k}Equation")
                for k in ("Electrons", "Holes")
            )
            for c in given["contacts"]
        ]
        found = ds.get_node_model_values(device=DEVICE, region=REGION, name="Potential")
        potential = [0.0] * len(places)
        for place, value in zip(places, found):
            potential[place] = value
        solutions.append({"currents": currents, "potential": potential})
    seconds = time.process_time() - start
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump({"seconds": seconds, "solutions": solutions}, file)


main()
