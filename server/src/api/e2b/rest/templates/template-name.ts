/** `name:tag`, as E2B has it. A name without a tag has the tag `default`, which our own names leave out. */
import { CayError, TemplateNameSchema } from '@cay/sdk/protocol';

export const DEFAULT_TAG = 'default';

export interface TemplateRef {
  name: string;
  tag?: string;
}

export function parseTemplateRef(text: string): TemplateRef {
  const [name = '', tag, ...rest] = text.trim().split(':');
  if (rest.length > 0 || tag === '') throw invalid(text);
  const ref = { name: name.toLowerCase(), ...(tag !== undefined && { tag }) };
  formatTemplateRef(ref);
  return ref;
}

export function formatTemplateRef({ name, tag }: TemplateRef): string {
  const text = tag === undefined || tag === DEFAULT_TAG ? name : `${name}:${tag}`;
  if (!TemplateNameSchema.safeParse(text).success || name.includes(':')) throw invalid(text);
  return text;
}

function invalid(text: string): CayError {
  return new CayError('invalid_argument', `"${text.slice(0, 80)}" cannot name a template`, {
    hint: 'a name is 1 to 63 of a-z 0-9 _ . - and may be followed by ":" and a tag',
  });
}
