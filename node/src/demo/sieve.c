/* Counts the primes up to a limit by the sieve of Eratosthenes. */
#include "sieve.h"

#include <stdlib.h>

long count_primes(long limit) {
    char *composite = calloc((size_t)limit + 1, 1);
    if (composite == NULL) {
        return -1;
    }
    long count = 0;
    for (long n = 2; n <= limit; n++) {
        if (composite[n]) {
            continue;
        }
        count++;
        for (long multiple = n * n; multiple <= limit; multiple += n) {
            composite[multiple] = 1;
        }
    }
    free(composite);
    return count;
}
