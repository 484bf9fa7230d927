/** Tier 1: tools that the guest answers without a process. */
import { Buffer } from 'node:buffer';
import { CayError, type ToolInput } from '@cay/sdk/protocol';
import type { CborMap, CborValue } from '../../guest/cbor.ts';
import type { Files, Guest, ToolAnswer } from '../../guest/guest.ts';
import { DEFAULT_OUTPUT_BYTES } from './limits.ts';
import type { RunningCall, ToolOutcome } from './tool.ts';

/** What the tools of tier 1 use of a sandbox. */
export interface GuestParts {
  guest: Guest;
  /** Whose changes are audited. */
  files: Files;
}

const text = (content: string): ToolOutcome['content'] => [{ type: 'text', text: content }];
const utf8 = (data: Uint8Array) => Buffer.from(data.buffer, data.byteOffset, data.length).toString('utf8');

const numberOf = (facts: CborMap, key: string) => {
  const value = facts[key];
  return typeof value === 'number' ? value : 0;
};

/** Numbers and flags of the guest, for programs; what is not one is left out. */
function plain(facts: CborMap): Record<string, unknown> {
  const isPlain = (value: CborValue | undefined): boolean =>
    typeof value === 'number' ||
    typeof value === 'boolean' ||
    typeof value === 'string' ||
    (Array.isArray(value) && value.every((one) => typeof one === 'number' || typeof one === 'string'));
  return Object.fromEntries(Object.entries(facts).filter(([, value]) => isPlain(value)));
}

async function ask(
  { guest }: GuestParts,
  call: RunningCall,
  request: CborMap & { name: string },
): Promise<ToolAnswer> {
  return guest.tool(
    call.user,
    { ...request, cwd: call.workdir, timeoutMs: call.timeoutMs },
    { signal: call.signal },
  );
}

/** Text that is longer than the caller wants is cut at a line. */
function bounded(content: string, { call }: RunningCall): { content: string; omittedBytes: number } {
  const most = call.maxOutputBytes ?? DEFAULT_OUTPUT_BYTES;
  const bytes = Buffer.byteLength(content);
  if (bytes <= most) return { content, omittedBytes: 0 };
  const cut = Buffer.from(content).subarray(0, most).toString('utf8');
  const line = cut.lastIndexOf('\n');
  const kept = line > 0 ? cut.slice(0, line + 1) : cut;
  return { content: kept, omittedBytes: bytes - Buffer.byteLength(kept) };
}

export async function read(
  parts: GuestParts,
  call: RunningCall,
  { file_path, offset, limit }: ToolInput<'read'>,
): Promise<ToolOutcome> {
  const { facts, data } = await ask(parts, call, { name: 'read', path: file_path, offset, limit });
  const structured = { file_path, ...plain(facts) };
  const { kind, type: media } = facts;
  if (kind === 'image' && typeof media === 'string')
    return {
      content: [{ type: 'image', data: utf8Base64(data), mimeType: media }],
      structured,
    };
  if (kind === 'document' && typeof media === 'string') {
    const resource = { uri: `file://${encodeURI(file_path)}`, mimeType: media, blob: utf8Base64(data) };
    return { content: [{ type: 'resource', resource }], structured };
  }
  if (kind === 'binary')
    return {
      content: text(`"${file_path}" is a binary file of ${numberOf(facts, 'size')} bytes; it is not shown`),
      structured,
    };
  const shown = bounded(utf8(data), call);
  if (shown.content === '' && facts['lines'] === 0)
    return { content: text(`"${file_path}" is empty`), structured };
  const lines = shown.content.split('\n').length - 1;
  const first = offset ?? 1;
  const isMore = facts['more'] === true || shown.omittedBytes > 0;
  const total = typeof facts['lines'] === 'number' ? ` of ${facts['lines']}` : '';
  const note = isMore
    ? `\n[lines ${first} to ${first + lines - 1}${total}; read on with "offset": ${first + lines}]`
    : lines === 0
      ? `[line ${first} is past the end of the file, which has${total.slice(3)} lines]`
      : '';
  return {
    content: text(shown.content + note),
    structured: { ...structured, shown: lines },
    ...(shown.omittedBytes > 0 && { truncated: { omittedBytes: shown.omittedBytes } }),
  };
}

const utf8Base64 = (data: Uint8Array) =>
  Buffer.from(data.buffer, data.byteOffset, data.length).toString('base64');

export async function write(
  { files }: GuestParts,
  { workdir, signal }: RunningCall,
  { file_path, content }: ToolInput<'write'>,
): Promise<ToolOutcome> {
  const path = file_path.startsWith('/') ? file_path : `${workdir}/${file_path}`;
  const data = Buffer.from(content);
  const { sizeBytes: size } = await files.write(path, data, { signal });
  return { content: text(`Wrote ${data.length} bytes to "${path}"`), structured: { file_path: path, size } };
}

function edited(path: string, { facts, data }: ToolAnswer): ToolOutcome {
  const what =
    facts['created'] === true
      ? `Made "${path}"`
      : `Edited "${path}": ${numberOf(facts, 'replacements')} replaced`;
  return { content: text(`${what}\n${utf8(data)}`), structured: { file_path: path, ...plain(facts) } };
}

export async function edit(
  parts: GuestParts,
  call: RunningCall,
  { file_path, old_string, new_string, replace_all = false }: ToolInput<'edit'>,
): Promise<ToolOutcome> {
  const request = { name: 'edit', path: file_path, old: old_string, new: new_string, all: replace_all };
  return edited(file_path, await ask(parts, call, request));
}

export async function multiEdit(
  parts: GuestParts,
  call: RunningCall,
  { file_path, edits }: ToolInput<'multi_edit'>,
): Promise<ToolOutcome> {
  const bytes = edits.reduce((sum, one) => sum + one.old_string.length + one.new_string.length, 0);
  if (bytes > 512 * 1024)
    throw new CayError('invalid_argument', `The edits have ${bytes} characters; at most 524288 are taken`);
  const request = {
    name: 'multi_edit',
    path: file_path,
    edits: edits.map((one) => ({
      old: one.old_string,
      new: one.new_string,
      all: one.replace_all ?? false,
    })),
  };
  return edited(file_path, await ask(parts, call, request));
}

export async function applyPatch(
  parts: GuestParts,
  call: RunningCall,
  { patch }: ToolInput<'apply_patch'>,
): Promise<ToolOutcome> {
  const { facts } = await ask(parts, call, { name: 'apply_patch', patch });
  const structured = plain(facts);
  const lines = (letter: string, paths: unknown) =>
    Array.isArray(paths) ? paths.map((path) => `${letter} ${String(path)}`) : [];
  const all = [
    ...lines('A', structured['added']),
    ...lines('M', structured['modified']),
    ...lines('D', structured['deleted']),
  ];
  return {
    content: text(`Success. Updated the following files:\n${all.join('\n')}\n`),
    structured,
  };
}

export async function list(
  parts: GuestParts,
  call: RunningCall,
  { path, depth, ignore }: ToolInput<'list'>,
): Promise<ToolOutcome> {
  return found(await ask(parts, call, { name: 'list', path, depth, ignore }), call, {
    none: 'The directory is empty',
    more: 'there are more names',
  });
}

export async function glob(
  parts: GuestParts,
  call: RunningCall,
  { pattern, path, limit }: ToolInput<'glob'>,
): Promise<ToolOutcome> {
  return found(await ask(parts, call, { name: 'glob', pattern, path, limit }), call, {
    none: 'No files found',
    more: 'there are more files: narrow the pattern, or raise "limit"',
  });
}

export async function grep(
  parts: GuestParts,
  call: RunningCall,
  input: ToolInput<'grep'>,
): Promise<ToolOutcome> {
  const around = input['-C'];
  const answer = await ask(parts, call, {
    name: 'grep',
    pattern: input.pattern,
    path: input.path,
    glob: input.glob,
    type: input.type,
    mode: input.output_mode,
    before: input['-B'] ?? around,
    after: input['-A'] ?? around,
    numbers: input['-n'],
    ignoreCase: input['-i'],
    onlyMatching: input['-o'],
    multiline: input.multiline,
    limit: input.head_limit,
    offset: input.offset,
    noIgnore: input.no_ignore,
  });
  return found(answer, call, {
    none: 'No matches found',
    more: 'there are more: narrow the search, or go on with "offset"',
  });
}

function found(
  { facts, data }: ToolAnswer,
  call: RunningCall,
  words: { none: string; more: string },
): ToolOutcome {
  const shown = bounded(utf8(data), call);
  const notes = [
    ...(shown.content === '' ? [words.none] : []),
    ...(facts['more'] === true || shown.omittedBytes > 0 ? [words.more] : []),
    ...(facts['late'] === true
      ? [`the time of ${call.timeoutMs} ms was over before everything was seen`]
      : []),
    ...(typeof facts['tooLarge'] === 'number' && facts['tooLarge'] > 0
      ? [`${facts['tooLarge']} files were too large to be searched with "multiline"`]
      : []),
  ];
  const note = notes.length === 0 ? '' : shown.content === '' ? notes.join('; ') : `[${notes.join('; ')}]`;
  return {
    content: text(shown.content + note),
    structured: plain(facts),
    ...(shown.omittedBytes > 0 && { truncated: { omittedBytes: shown.omittedBytes } }),
  };
}
