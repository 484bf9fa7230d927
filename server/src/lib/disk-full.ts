/** Whether an error of a system call says that a disk, or somebody's share of it, is full. */
export function isDiskFull(error: unknown): boolean {
  const { code, errno } = error as NodeJS.ErrnoException;
  // Node has no name for EDQUOT.
  return code === 'ENOSPC' || code === 'EDQUOT' || errno === -122;
}
