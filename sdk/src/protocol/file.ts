import { z } from 'zod';

export const FILE_TYPES = ['file', 'directory', 'symlink', 'fifo', 'socket', 'block', 'char'] as const;

/** What `stat` tells. A symlink is described as itself unless it was asked to be followed. */
export const FileInfoSchema = z.object({
  name: z.string(),
  path: z.string().describe('Absolute, inside the sandbox.'),
  type: z.enum(FILE_TYPES),
  sizeBytes: z.int().min(0),
  mode: z.int().min(0).max(0o7777).describe('Permission bits, as in 0o644.'),
  uid: z.int().min(0),
  gid: z.int().min(0),
  modifiedAtMs: z.int(),
  target: z.string().optional().describe('Where a symlink points, as it is written in the link.'),
});
export type FileInfo = z.infer<typeof FileInfoSchema>;

export const FileEventSchema = z.object({
  type: z.enum(['created', 'modified', 'removed', 'renamed', 'attributes', 'overflow']),
  path: z.string(),
});
/** `overflow` says that events were lost: read the tree again. */
export type FileEvent = z.infer<typeof FileEventSchema>;
