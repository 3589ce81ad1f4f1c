/* A trainer without Python, for a machine on which Python is 20 times slower.
   cc -O2 -static -o trainer trainer.c -lm; ./trainer DIR SAVES MIB SECONDS [RESTORE]
   It trains for SECONDS, saves MIB as DIR/step_N.ckpt (a temporary file, fsync, rename), and so on; with RESTORE it reads that file
   first. Each event is a line of JSON. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static float *weights;
static long values;

static long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void train(double seconds) {
    long end = now_ns() + (long)(seconds * 1e9);
    for (unsigned step = 1; now_ns() < end; step++)
        for (long i = step % 97; i < values; i += 97 * 64) weights[i] += 1e-4f * sinf(weights[i] + step);
}

static void done(const char *kind, const char *path, long start) {
    printf("{\"kind\": \"%s\", \"path\": \"%s\", \"bytes\": %ld, \"start_ns\": %ld, \"end_ns\": %ld}\n", kind, path,
           values * (long)sizeof *weights, start, now_ns());
    fflush(stdout);
}

static void move(int file, int writes) {
    char *at = (char *)weights;
    for (long left = values * (long)sizeof *weights, moved; left; left -= moved, at += moved) {
        long size = left < 1 << 20 ? left : 1 << 20;
        moved = writes ? write(file, at, size) : read(file, at, size);
        if (moved <= 0) {
            perror("trainer");
            exit(1);
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    values = atol(argv[3]) * (1L << 20) / (long)sizeof *weights;
    weights = malloc(values * sizeof *weights);
    if (argc > 5) {
        sleep(2); /* it would read its configuration and its data set */
        long start = now_ns();
        int file = open(argv[5], O_RDONLY);
        move(file, 0);
        close(file);
        done("restore", argv[5], start);
    } else {
        for (long i = 0; i < values; i++) weights[i] = (float)i / values;
    }
    for (int save = 1; save <= atoi(argv[2]); save++) {
        char path[4096], temporary[4100];
        train(atof(argv[4]));
        snprintf(path, sizeof path, "%s/step_%06d.ckpt", argv[1], save * 100);
        snprintf(temporary, sizeof temporary, "%s.tmp", path);
        long start = now_ns();
        int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        move(file, 1);
        if (fsync(file) || close(file) || rename(temporary, path)) {
            perror("trainer");
            exit(1);
        }
        done("save", path, start);
    }
    train(atof(argv[4]));
    return 0;
}
