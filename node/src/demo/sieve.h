/* The number of primes up to `limit`, or -1 where memory does not suffice. */
long count_primes(long limit);
