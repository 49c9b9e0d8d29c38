/* The limit of a start: mints an id, makes the directory with meta.json and status, forks away a supervisor that
 * says `running`, starts the command with its log and records its end; prints the id once the command really runs.
 * With `-s` what was claimed is on the disk before that. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int safe;

/* With `sync`, what is put is on the disk before it has its name. */

static void put(int dir, const char *name, const char *text, int sync) {
    int file = openat(dir, ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (write(file, text, strlen(text)) < 0) _exit(125);
    if (sync) fsync(file);
    close(file);
    renameat(dir, ".new", dir, name);
}

static void supervise(int dir, int ready, char **command) {
    int errors[2], why, status;
    char text[256];
    int pid = openat(dir, "pid", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    flock(pid, LOCK_EX);
    dprintf(pid, "%d\n", getpid());
    put(dir, "status", "running\n", 0);
    if (pipe2(errors, O_CLOEXEC)) _exit(125);
    pid_t child = fork();
    if (child == 0) {
        int log = openat(dir, "out.log", O_WRONLY | O_CREAT | O_APPEND, 0666), null = open("/dev/null", O_RDONLY);
        setsid();
        dup2(null, 0), dup2(log, 1), dup2(log, 2);
        execvp(command[0], command);
        why = errno;
        if (write(errors[1], &why, sizeof why) < 0) _exit(125);
        _exit(127);
    }
    close(errors[1]);
    if (read(errors[0], &why, sizeof why) == 0 && write(ready, "\n", 1) < 0) _exit(125);
    close(ready);
    waitpid(child, &status, 0);
    snprintf(text, sizeof text, "{\"status\":\"%s\",\"exit_code\":%d}\n", status ? "failed" : "done", WEXITSTATUS(status));
    put(dir, "result.json", text, safe);
    if (safe) fsync(dir);
    put(dir, "status", status ? "failed\n" : "done\n", 0);
    _exit(0);
}

int main(int argc, char **argv) {
    unsigned char random[6];
    char id[64], meta[256], answer;
    int ready[2];
    time_t now = time(NULL);
    if (argc > 1 && !strcmp(argv[1], "-s")) safe = 1, argv++, argc--;
    if (argc < 3 || getrandom(random, sizeof random, 0) != sizeof random) return 125;
    size_t length = strftime(id, sizeof id, "%Y%m%dT%H%M%SZ-", gmtime(&now));
    for (int i = 0; i < 6; i++) length += sprintf(id + length, "%02x", random[i]);
    snprintf(meta, sizeof meta, "{\"version\":1,\"job\":\"%s\",\"claimed_at\":%ld}\n", id, (long)now);
    int root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (mkdirat(root, id, 0777)) return 3;
    int dir = openat(root, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put(dir, "meta.json", meta, safe);
    put(dir, "status", "claimed\n", safe);
    if (safe) fsync(dir), fsync(root);
    if (pipe2(ready, O_CLOEXEC)) return 125;
    pid_t between = fork();
    if (between == 0) {
        setsid();
        if (fork() == 0) supervise(dir, ready[1], argv + 2);
        _exit(0);
    }
    close(ready[1]);
    waitpid(between, NULL, 0);
    if (read(ready[0], &answer, 1) != 1) return 127;
    puts(id);
    return 0;
}
