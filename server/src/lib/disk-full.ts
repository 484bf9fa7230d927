/** Whether an error of a system call says that a disk, or somebody's share of it, is full. */
export function isDiskFull(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOSPC' || code === 'EDQUOT';
}
