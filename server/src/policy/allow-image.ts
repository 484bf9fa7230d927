/**
 * Which images may be asked for, by patterns over the whole reference, tag included: `python:*`,
 * `registry.example.com/team/**`. `*` stands for anything but a slash, so that it never reaches another
 * registry or repository, `**` for anything, and every other character for itself.
 */
import { CayError } from '@cay/sdk/protocol';
import type { Policy } from './policy.ts';

type Images = Pick<Policy, 'images'>;

export function allowsImage({ images }: Images, reference: string): boolean {
  return images === undefined || images.some((pattern) => expressionOf(pattern).test(reference));
}

/** Rejects `permission_denied` unless the operator allows it. */
export function requireImage(policy: Images, reference: string): void {
  if (allowsImage(policy, reference)) return;
  throw new CayError(
    'permission_denied',
    `The operator does not allow the image "${reference.slice(0, 512)}"`,
    {
      details: { image: reference.slice(0, 512), allowed: policy.images },
      hint: policy.images?.length
        ? `allowed are ${policy.images.join(', ')}`
        : 'only the template "base" is allowed',
    },
  );
}

const expressions = new Map<string, RegExp>();

/** Patterns are the operator's own and few, so they are kept. */
function expressionOf(pattern: string): RegExp {
  let known = expressions.get(pattern);
  if (!known) {
    const parts = pattern.split(/(\*+)/).map((part) => {
      if (part === '') return '';
      if (part === '*') return '[^/]*';
      return part.startsWith('*') ? '.*' : part.replaceAll(/[$()+.?[\\\]^{|}-]/g, String.raw`\$&`);
    });
    expressions.set(pattern, (known = new RegExp(`^${parts.join('')}$`, 's')));
  }
  return known;
}
