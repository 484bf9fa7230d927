/** Whether a system error says that a disk or a disk quota is full. */
export function isDiskFull(error: unknown): boolean {
  const { code, errno } = error as NodeJS.ErrnoException;
  // Node has no name for EDQUOT.
  return code === 'ENOSPC' || code === 'EDQUOT' || errno === -122;
}
