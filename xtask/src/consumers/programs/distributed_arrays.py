"""Arrays that heat has spread over the ranks give the results of NumPy."""

import heat
import numpy
from mpi4py import MPI

rank = MPI.COMM_WORLD.rank
heat.random.seed(7)

numbers = heat.arange(1000, split=0, dtype=heat.float64)
assert numbers.sum().item() == 999 * 1000 / 2

left = heat.random.rand(40, 30, split=0)
right = heat.random.rand(30, 50, split=1)
product = heat.matmul(left, right)
numpy.testing.assert_allclose(product.numpy(), left.numpy() @ right.numpy(), rtol=1e-4)

again = heat.resplit(left, 1)
numpy.testing.assert_array_equal(again.numpy(), left.numpy())

mixed = heat.random.rand(997, split=0)
whole = mixed.numpy()
sums = heat.cumsum(mixed, axis=0).numpy()
numpy.testing.assert_allclose(sums, numpy.cumsum(whole), rtol=1e-4)
assert heat.max(mixed).item() == whole.max()
figures = [heat.mean(mixed).item(), heat.std(mixed).item()]
numpy.testing.assert_allclose(figures, [whole.mean(), whole.std()], rtol=1e-4)

print(f"distributed_arrays {rank}: passed")
