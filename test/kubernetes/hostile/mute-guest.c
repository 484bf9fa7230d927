/* A guest that is put into a pod as ours is, serves nothing, and answers every bridge with garbage. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void copy(const char *from, const char *directory, const char *name, int mode) {
  char path[4096], buffer[65536];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  int in = open(from, O_RDONLY), out = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
  for (ssize_t n; (n = read(in, buffer, sizeof buffer)) > 0;)
    if (write(out, buffer, n) != n) exit(1);
  close(out);
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[1], "install") == 0) {
    copy("/proc/self/exe", argv[2], "guest", 0755);
    copy("/etc/passwd", argv[2], "passwd", 0644);
    copy("/etc/group", argv[2], "group", 0644);
    char closed[4096];
    snprintf(closed, sizeof closed, "%s/closed", argv[2]);
    mkdir(closed, 0700);
    copy("/dev/null", closed, "file", 0644);
    chmod(closed, 0);
    for (int at = 3; at < argc; at++) mkdir(strchr(argv[at], ':') + 1, 0777);
    return 0;
  }
  if (argc > 1 && strcmp(argv[1], "bridge") == 0)
    for (;;)
      if (write(1, "I am the guest, believe me. ", 28) < 0) return 1;
  for (;;) pause();
}
