! A ring, columns of a matrix, and sums, in Fortran.
program fortran
  use mpi
  implicit none
  integer, parameter :: n = 300
  integer :: ierr, rank, ranks, to, from, row, i, j, status(MPI_STATUS_SIZE)
  double precision :: a(n, n), b(n, n), total
  integer :: requests(2)

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  to = mod(rank + 1, ranks)
  from = mod(rank + ranks - 1, ranks)
  do j = 1, n
     do i = 1, n
        a(i, j) = rank * 1.0d6 + i * 1000 + j
     end do
  end do
  b = -1
  ! A row has a hole of a column between any two elements.
  call MPI_Type_vector(n, 1, n, MPI_DOUBLE_PRECISION, row, ierr)
  call MPI_Type_commit(row, ierr)
  do i = 1, n
     call MPI_Irecv(b(i, 1), 1, row, from, i, MPI_COMM_WORLD, requests(1), ierr)
     call MPI_Isend(a(n + 1 - i, 1), 1, row, to, i, MPI_COMM_WORLD, requests(2), ierr)
     call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
  end do
  do j = 1, n
     do i = 1, n
        if (b(i, j) /= from * 1.0d6 + (n + 1 - i) * 1000 + j) then
           print *, 'rank', rank, 'has a wrong number at', i, j
           call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
        end if
     end do
  end do
  call MPI_Sendrecv(a, n * n, MPI_DOUBLE_PRECISION, to, 9, b, n * n, MPI_DOUBLE_PRECISION, &
       from, 9, MPI_COMM_WORLD, status, ierr)
  if (b(n, n) /= from * 1.0d6 + n * 1000 + n) call MPI_Abort(MPI_COMM_WORLD, 4, ierr)
  call MPI_Allreduce(dble(rank), total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (total /= ranks * (ranks - 1) / 2.0d0) call MPI_Abort(MPI_COMM_WORLD, 5, ierr)
  if (rank == 0) print '(a)', 'fortran: passed'
  call MPI_Type_free(row, ierr)
  call MPI_Finalize(ierr)
end program fortran
