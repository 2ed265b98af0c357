#include "sieve.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long limit = argc > 1 ? strtol(argv[1], NULL, 10) : 1000000;
    long count = count_primes(limit);
    if (count < 0) {
        fprintf(stderr, "no memory for a limit of %ld\n", limit);
        return 1;
    }
    printf("%ld primes up to %ld\n", count, limit);
    return 0;
}
